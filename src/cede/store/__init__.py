"""Durable storage: the only code that knows SQL.

SQLite by default, PostgreSQL for several servers, one schema for both. Nothing here decides: it
keeps the engine's decisions, all of one pass or none of it, and gives them back exactly.
"""

from __future__ import annotations

from cede.store.errors import (
    Damaged,
    Deposed,
    DiskFull,
    RolledBack,
    StaleIndex,
    StoreError,
    WrongDatabase,
)
from cede.store.filters import RequestFilter
from cede.store.store import Store
from cede.store.values import (
    AuditEntry,
    AuditNote,
    Batch,
    Idempotency,
    Loaded,
    Page,
    PolicyView,
    Remembered,
    RequestView,
    TenantView,
    UsageView,
)

__all__ = [
    "AuditEntry",
    "AuditNote",
    "Batch",
    "Damaged",
    "Deposed",
    "DiskFull",
    "Idempotency",
    "Loaded",
    "Page",
    "PolicyView",
    "Remembered",
    "RequestFilter",
    "RequestView",
    "RolledBack",
    "StaleIndex",
    "Store",
    "StoreError",
    "TenantView",
    "UsageView",
    "WrongDatabase",
]
