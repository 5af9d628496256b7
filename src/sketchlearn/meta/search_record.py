"""What a search has measured, kept so that it need not be measured again.

The record is one JSON object a line: the settings of the search, then every measurement
in its order. A search whose questions follow from the answers alone goes on from its
record as if it had never stopped. What is measured is not known here.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, final

from sketchlearn.errors import TrainingError
from sketchlearn.files.durable import write_file

__all__ = ["RECORD_NAME", "SearchRecord"]

RECORD_NAME = "search.jsonl"
"""Name of the record in the folder of a run."""


@final
class SearchRecord:
    """Measurements of a search in their order, those of former runs first.

    Parameters
    ----------
    folder : path, optional
        Where the record is kept; made if need be. Without it nothing is kept.
    settings : mapping
        All that the search depends on, of JSON's types; a record of others is refused.
    resume : bool
        Whether a record that is there is gone on with, or refused.

    Examples
    --------
    >>> record = SearchRecord(None, {"seed": 0})
    >>> record.recall("evaluation", lambda: {"loss": 0.5})
    {'loss': 0.5}
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None,
        settings: Mapping[str, Any],
        *,
        resume: bool = True,
    ) -> None:
        self._path = None if folder is None else Path(folder, RECORD_NAME)
        self._known: deque[dict[str, Any]] = deque()
        self.seconds = 0.0
        """Time spent on the measurements that were recalled."""
        header = json.loads(json.dumps({"event": "settings", **settings}))
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self._path.exists():
            self._open(self._path, header, resume)
        else:
            self._append(header)

    def recall(
        self, event: str, measure: Callable[[], Mapping[str, float]]
    ) -> dict[str, float]:
        """The next measurement: of the record while it has some, then a new one."""
        if self._known:
            known = self._known.popleft()
            if known["event"] != event:
                raise TrainingError(
                    f"{str(self._path)!r} has the {known['event']} of another search "
                    f"where this one has an {event}. Start again in another folder."
                )
            self.seconds += known["seconds"]
            found: dict[str, float] = known["found"]
            return found
        start = time.monotonic()
        found = dict(measure())
        spent = time.monotonic() - start
        self.seconds += spent
        self._append({"event": event, "seconds": spent, "found": found})
        return found

    def _open(self, path: Path, header: dict[str, Any], resume: bool) -> None:
        if not resume:
            raise TrainingError(
                f"{str(path.parent)!r} has the record of a search already; resume it, "
                "or choose another folder."
            )
        lines = path.read_text("utf-8").splitlines(keepends=True)
        if lines and not lines[-1].endswith("\n"):  # killed while it wrote
            lines = lines[:-1]
            write_file(path, "".join(lines).encode())
        try:
            entries = [json.loads(line) for line in lines]
        except json.JSONDecodeError as error:
            raise TrainingError(
                f"{str(path)!r} is damaged: {error}. Start again in another folder."
            ) from error
        if not entries:
            self._append(header)
        elif entries[0] != header:
            changed = [key for key in header if entries[0].get(key) != header[key]]
            raise TrainingError(
                f"cannot resume: the search in {str(path)!r} was made with other "
                f"settings ({', '.join(changed) or 'of a newer release'}). Use the "
                "same settings, or start again in another folder."
            )
        self._known.extend(entries[1:])

    def _append(self, entry: Mapping[str, Any]) -> None:
        if self._path is None:
            return
        with open(self._path, "a", encoding="utf-8") as record:
            record.write(json.dumps(entry) + "\n")
