"""All mutants."""

from __future__ import annotations

from mutants.of_checks import OF_CHECKS
from mutants.of_destinations import OF_DESTINATIONS
from mutants.of_protocol import OF_PROTOCOL
from mutants.of_strategies import OF_STRATEGIES

MUTANTS = (*OF_PROTOCOL, *OF_DESTINATIONS, *OF_STRATEGIES, *OF_CHECKS)
