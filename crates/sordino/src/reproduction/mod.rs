//! The tables and figures of the papers, side by side with their true epsilon and Sordino's results.
//!
//! A [`Table`] of the [catalogue] lists a paper's numbers and the settings that they were measured with. Each of its cells leads to up to
//! three [experiments](Experiment): the paper's algorithm and noise as published, the same algorithm with an epsilon that is proved, and Sordino's
//! best settings at this epsilon. [`run`] trains the missing runs, and a [`Store`] keeps every finished run, so that an interrupted
//! reproduction can continue. A [`SideBySide`] is the result.
//!
//! The data sets are public benchmarks, so all runs are seeded, which makes them reproducible and not private.

mod best;
mod catalogue;
mod data_sets;
mod experiment;
mod grid;
mod part;
mod search;
mod side_by_side;
mod store;

pub use catalogue::{Cell, Kind, Measure, Table, catalogue, find};
pub use data_sets::{DataSet, data_sets};
pub use experiment::{Experiment, Finished, run};
pub use grid::Point;
pub use search::Search;
pub use side_by_side::{DEFAULT_RUNS, SideBySide, TrueEpsilon};
pub use store::{RunRecord, Store};
