"""Storage as scheduling sees it: volumes, claims and classes, what suits what, and how a choice is written."""
