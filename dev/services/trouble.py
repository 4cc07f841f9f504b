"""What can keep the services from running, as sentences for the person who typed `make up`."""

from __future__ import annotations


class ServicesError(RuntimeError):
    """Something of the services profile does not run; the message says what and what to do."""


class ToolMissing(ServicesError):
    """This machine lacks a program that a part of the profile needs; nothing was started."""
