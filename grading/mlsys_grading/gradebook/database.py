"""nbgrader's database, opened so that a writer may be killed at any moment and others may read meanwhile."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import Boolean, Column, MetaData, String, Table, create_engine, event, inspect, select, text
from sqlalchemy.dialects.sqlite import Insert, insert
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DatabaseError

from mlsys_labkit.errors import LabkitError

Kind = Literal["IMMEDIATE", "DEFERRED"]
_BUSY_SECONDS = 60.0

# Our table beside nbgrader's, which cannot store the job that the marks of a submitted notebook came from.
GRADED = Table(
    "mlsys_graded",
    MetaData(),
    Column("notebook_id", String(32), primary_key=True),
    Column("job", String(128), nullable=False),
    Column("sandbox", Boolean, nullable=False),
)


def open_database(path: Path, course: str) -> Engine:
    """Open ``path``, made with nbgrader's tables if it is not there; raises LabkitError if it cannot be used.

    One engine for all of a run. The journal is a write-ahead log: a kill leaves whole transactions only, and
    formgrader reads while marks are written. Where a file system has no such log, SQLite keeps its other journal.
    Reference: https://www.sqlite.org/wal.html
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # AUTOCOMMIT: Python's sqlite3 begins no transactions of its own, so that those below hold DDL as well.
    engine = create_engine(
        f"sqlite:///{path}",
        isolation_level="AUTOCOMMIT",
        pool_size=1,  # data_version, which detects other writers, counts per connection
        max_overflow=0,
        connect_args={"timeout": _BUSY_SECONDS},
    )

    @event.listens_for(engine, "connect")
    def _settle(connection: Any, _: object) -> None:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")  # committed rows survive a power cut

    with transaction(engine, path) as connection:
        _make_tables(connection, path, course)
    return engine


@contextmanager
def transaction(engine: Engine, path: Path, kind: Kind = "IMMEDIATE") -> Iterator[Connection]:
    """Run the block as one transaction. "IMMEDIATE" keeps other writers out, "DEFERRED" reads one state of the whole.

    Raises LabkitError with SQLite's reason.
    """
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql(f"BEGIN {kind}")
            try:
                yield connection
                connection.exec_driver_sql("COMMIT")
            except BaseException:
                if connection.connection.driver_connection.in_transaction:  # type: ignore[union-attr]
                    connection.exec_driver_sql("ROLLBACK")
                raise
    except (DatabaseError, sqlite3.Error) as error:
        reason = " ".join(str(getattr(error, "orig", error)).split())
        advice = "close what holds it" if "locked" in reason else "restore a copy, or mend it with nbgrader db upgrade"
        raise LabkitError(f"{path}: {reason}; nothing of this was written; {advice} and grade again") from None


def upsert(connection: Connection, table: Table, key: Sequence[str], rows: Sequence[Mapping[str, object]]) -> None:
    """Insert ``rows``; a row whose columns ``key`` are there already replaces the values of its other columns."""
    if rows:  # an empty list would be one row of defaults
        connection.execute(_upsert(table, tuple(key), tuple(rows[0])), rows)


@cache
def _upsert(table: Table, key: tuple[str, ...], columns: tuple[str, ...]) -> Insert:
    """Build the statement once: SQLAlchemy takes longer to build it than SQLite to carry it out."""
    new = insert(table)
    changed = {column: new.excluded[column] for column in columns if column not in key}
    return new.on_conflict_do_update(index_elements=key, set_=changed)


def _make_tables(connection: Connection, path: Path, course: str) -> None:
    from nbgrader.api import Base, Course

    here, head = set(inspect(connection).get_table_names()), _layout()
    if not here:
        connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)"))
        connection.execute(text("INSERT INTO alembic_version (version_num) VALUES (:head)"), {"head": head})
    elif "alembic_version" in here:
        found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
        if found != head:
            raise LabkitError(f"{path}: its layout is {found}, this nbgrader's is {head}; run: nbgrader db upgrade")
    Base.metadata.create_all(connection)
    GRADED.create(connection, checkfirst=True)
    if connection.execute(select(Course.id).where(Course.id == course)).first() is None:
        connection.execute(Course.__table__.insert(), {"id": course})


def _layout() -> str:
    """Return the newest layout that nbgrader knows, without the command alembic, which nbgrader needs on PATH."""
    from alembic.script import ScriptDirectory
    from nbgrader.dbutil import ALEMBIC_DIR

    return str(ScriptDirectory(ALEMBIC_DIR).get_current_head())
