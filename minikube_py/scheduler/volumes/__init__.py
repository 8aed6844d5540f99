"""Storage as scheduling sees it: volumes, claims and classes, their matching, and how a choice is written."""
