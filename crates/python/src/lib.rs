//! The extension module of the Python package `sordino`. maturin builds it with the feature `extension`.
#![cfg(feature = "extension")]

mod accounting;
mod arrays;
mod datasets;
mod errors;
mod federated;
mod fitted;
mod frames;
mod network;
mod threads;
mod training;

use std::ffi::OsString;

use pyo3::prelude::*;

/// The extension module of `sordino`.
#[pymodule]
fn _sordino(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("BudgetError", module.py().get_type::<errors::BudgetError>())?;
    accounting::register(module)?;
    module.add_class::<arrays::Data>()?;
    module.add_class::<federated::UpdateVault>()?;
    module.add_class::<fitted::Model>()?;
    module.add_class::<frames::Schema>()?;
    module.add_class::<network::Network>()?;
    module.add_function(wrap_pyfunction!(training::fit, module)?)?;
    module.add_function(wrap_pyfunction!(training::setting_headings, module)?)?;
    module.add_function(wrap_pyfunction!(command, module)?)?;
    module.add_function(wrap_pyfunction!(datasets::mushroom, module)?)
}

/// Runs the command `sordino` with these arguments and returns its exit code. The first argument is the name of the command.
#[pyfunction]
fn command(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| sordino::cli::main(arguments))
}
