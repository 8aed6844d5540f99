"""Lifecycles of objects as data: KWOK's Stages, read, matched and rendered. Pure."""
