//! Searches whose exact output probabilities are enumerated: no bound may be below them.
