"""Whether the tables of a database agree with each other, as they must whenever it is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...memory.database import Database


def disagreements(database: Database) -> list[str]:
    """Returns what is wrong between memories and their words, and what SQLite finds wrong in its file."""
    key = "rowid" if database.is_sqlite else "seq"
    rows = "SELECT seq FROM rankbudget_memories"
    words = f"SELECT {key} FROM rankbudget_memory_terms"  # noqa: S608 - a name from the line above
    queries = {"without words": f"{rows} EXCEPT {words}", "without a row": f"{words} EXCEPT {rows}"}
    found = []
    with database.write() as connection:
        for fault, query in queries.items():
            found += [f"{row[0]} is {fault}" for row in connection.exec_driver_sql(query)]
        if database.is_sqlite:
            connection.exec_driver_sql(
                "INSERT INTO rankbudget_memory_terms (rankbudget_memory_terms) VALUES ('integrity-check')"
            )
            told = connection.exec_driver_sql("PRAGMA integrity_check").scalars()
            found += [fault for fault in told if fault != "ok"]
    return found
