"""Data sets that are part of the package."""

from typing import Tuple

import numpy as np

from . import _sordino


def mushroom(test_fraction: float = 0.2, split_seed: int = 0) -> Tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The UCI Mushroom data: 8,124 records with 126 features. The label is ``e`` (edible) or ``p`` (poisonous).

    The split into training records and test records is the same as that of ``sordino train``. The data is published under CC BY 4.0 (https://doi.org/10.24432/C5959T).

    Parameters
    ----------
    test_fraction : float
        The fraction of the records that is held out for testing; 0 for no test records.
    split_seed : int
        The seed of the random split.

    Returns
    -------
    x, y, test_x, test_y : arrays
        Training records and test records.

    Examples
    --------
    >>> from sordino import datasets
    >>> x, y, test_x, test_y = datasets.mushroom()
    >>> x.shape, test_x.shape
    ((6499, 126), (1625, 126))
    >>> sorted(set(y.tolist()))
    ['e', 'p']
    """
    (x, y), test, names = _sordino.mushroom(test_fraction, split_seed)
    test_x, test_y = test if test is not None else (x[:0], y[:0])
    labels = np.array(names)
    return x, labels[y], test_x, labels[test_y]
