"""A pool of processes that survives the death of a worker, and whose workers end with the run."""

from __future__ import annotations

import contextlib
import logging
import pickle
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

from ..errors import BudgetConfigError, BudgetError

Task = TypeVar("Task")
Answer = TypeVar("Answer")
_TRIES = 3
"""How often a task is started before it is said to kill its worker."""


def answers_of(
    work: Callable[[Task], Answer], tasks: Iterator[Task], *, workers: int
) -> Generator[tuple[Task, Answer]]:
    """Yields each task with its answer, as they come; one worker means this process.

    Args:
        work: answers a task; it is pickled once for each worker.
        tasks: read one by one, when a worker is free, so that no more than `workers` are in memory.
        workers: processes, 1 or more.

    Raises:
        BudgetError: a task ended its worker three times.
        Exception: whatever `work` raises.
    """
    if workers == 1:
        for task in tasks:
            yield task, work(task)
        return
    pool = _Pool(work)
    try:
        yield from pool.answers(tasks, workers)
    finally:
        pool.close()


def check_picklable(settings: Any) -> None:
    """Raises BudgetConfigError where a new process could not read the settings."""
    try:
        pickled = pickle.dumps(settings)
    except Exception as error:
        msg = (
            f"counter and scorer must be picklable (got {error}). Define them in a module, or use workers=1."
        )
        raise BudgetConfigError(msg) from error
    if b"__main__" in pickled and getattr(sys.modules["__main__"], "__file__", None) is None:
        msg = (
            "the counter and scorer must be defined in a module (got one of a notebook or a program without "
            "a file). Move it into a module, or use workers=1."
        )
        raise BudgetConfigError(msg)


class _Worker(Generic[Task]):
    """A process with one task at a time; `task` is None while it waits."""

    def __init__(self, work: Callable[[Task], Any]) -> None:
        # "spawn": a forked copy of a process with threads (tokenizers have some) may hang.
        context = get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, work), daemon=True)
        self.process.start()
        theirs.close()  # the worker holds the only one, so that its death closes the pipe
        self.task: Task | None = None
        self.tries = 0

    def start(self, task: Task, tries: int) -> None:
        self.task, self.tries = task, tries
        with contextlib.suppress(OSError):  # a dead worker is noticed where its answer is awaited
            self.connection.send(task)

    def end(self) -> int | None:
        self.process.kill()
        self.process.join()
        self.connection.close()
        return self.process.exitcode


class _Pool(Generic[Task, Answer]):
    def __init__(self, work: Callable[[Task], Answer]) -> None:
        self._work = work
        self._busy: dict[Any, _Worker[Task]] = {}

    def answers(self, tasks: Iterator[Task], workers: int) -> Iterator[tuple[Task, Answer]]:
        for _, task in zip(range(workers), tasks, strict=False):
            self._start(_Worker(self._work), task)
        while self._busy:
            for connection in wait(list(self._busy)):
                worker = self._busy.pop(connection)
                try:
                    is_answer, answer = worker.connection.recv()
                except (EOFError, OSError):
                    self._start_again(worker)
                    continue
                if not is_answer:
                    worker.end()
                    raise answer
                assert worker.task is not None
                done, following = worker.task, next(tasks, None)
                if following is None:
                    worker.end()
                else:
                    self._start(worker, following)
                yield done, answer

    def close(self) -> None:
        for worker in self._busy.values():
            worker.end()
        self._busy.clear()

    def _start(self, worker: _Worker[Task], task: Task, tries: int = 1) -> None:
        self._busy[worker.connection] = worker
        worker.start(task, tries)

    def _start_again(self, worker: _Worker[Task]) -> None:
        """Gives the task of a worker that died to a new one."""
        code = worker.end()
        assert worker.task is not None
        if worker.tries == _TRIES:
            msg = (
                f"{worker.task} must not end its worker (it did {_TRIES} times, exit code {code}). "
                "Look for a lack of memory, use fewer workers, or guard your script with "
                "if __name__ == '__main__'."
            )
            raise BudgetError(msg)
        self._start(_Worker(self._work), worker.task, worker.tries + 1)


def _serve(connection: Connection, work: Callable[[Any], Any]) -> None:
    """Answers tasks until the other end of the pipe is closed, by the run's end or its death."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the run, which ends its workers
    logging.getLogger("rankbudget").setLevel(logging.ERROR)  # the run itself logs what a counter estimates
    while True:
        try:
            task = connection.recv()
        except (EOFError, OSError):
            return
        try:
            answer: tuple[bool, Any] = True, work(task)
        except Exception as error:  # noqa: BLE001 - it is raised again in the run's own process
            answer = False, error
        try:
            connection.send(answer)
        except OSError:
            return
