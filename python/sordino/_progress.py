"""Progress reports during training."""

from __future__ import annotations

import sys
from contextlib import contextmanager, suppress
from typing import Any, Callable, Iterator, Optional

Callback = Callable[[int, int, Optional[float]], Any]


@contextmanager
def progress_callback(progress: Any) -> Iterator[Optional[Callback]]:
    """The callback for ``progress``: None (a progress bar if tqdm is installed and standard error is a terminal), a bool or a function."""
    if callable(progress):
        yield _marked(progress)
    elif progress is not None and not isinstance(progress, bool):
        raise ValueError(f"progress must be None, True, False or a function, got {progress!r}")
    elif progress is False or (progress is None and not _is_terminal()):
        yield None
    else:
        try:
            from tqdm.auto import tqdm
        except ImportError:
            yield _printed if progress else None
        else:
            with tqdm(unit="step", leave=False) as bar:
                yield lambda *progress: _show(bar, *progress)


def _marked(function: Callback) -> Callback:
    """The same function. Its exceptions are marked, because a fit that they stop has used records."""

    def report(*progress: Any) -> None:
        try:
            function(*progress)
        except Exception as error:
            with suppress(AttributeError, TypeError):  # Some exceptions have no attributes.
                error.stopped_training = True  # type: ignore[attr-defined]
            raise

    return report


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def _show(bar: Any, step: int, steps: int, score: Optional[float]) -> None:
    bar.total = steps
    if score is not None:
        bar.set_postfix(score=f"{score:.4f}", refresh=False)
    bar.update(step - bar.n)


def _printed(step: int, steps: int, score: Optional[float]) -> None:
    rest = "" if score is None else f", score {score:.4f}"
    end = "\n" if step >= steps else ""
    print(f"\rstep {step} of {steps}{rest}", end=end, file=sys.stderr, flush=True)
