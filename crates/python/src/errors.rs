//! Errors as Python exceptions: the value and the permitted range, then a hint with the names of the Python parameters.

use pyo3::{create_exception, exceptions::PyValueError, prelude::*};
use sordino::{Error, accounting::AccountingError, algorithms::AlgorithmError, own_loop::PrivacyError};

create_exception!(
    sordino,
    BudgetError,
    PyValueError,
    "Raised if a plan exceeds the privacy budget, or if no noise multiplier meets the privacy budget."
);

/// The exception of an error: [`BudgetError`] if a plan exceeds its budget or no plan meets it, otherwise `ValueError`.
pub(crate) fn to_python(error: impl Into<Error>) -> PyErr {
    let error = error.into();
    let message = format!("{}\nhint: {}", message(&error), in_python(error.hint().render(argument)));
    if is_about_the_budget(&error) { BudgetError::new_err(message) } else { PyValueError::new_err(message) }
}

/// Replaces names of the Rust library by names of the Python package.
fn in_python(hint: String) -> String {
    const NAMES: [(&str, &str); 7] = [
        ("Trainer::resume", "fit(..., resume=True)"),
        ("Trainer::public_test_data", "fit(..., test=(X, y), public_test=True)"),
        ("Trainer::test_data", "fit(..., test=(X, y))"),
        ("Fitted::save", "save"),
        ("Fitted::open", "sordino.open"),
        ("Fitted::params", "the parameters"),
        ("Dataset::from_rows(&x, &y)", "fit(X, y)"),
    ];
    NAMES.iter().fold(hint, |hint, (rust, python)| hint.replace(rust, python))
}

/// A setting as an argument: `epochs=10`, `accountant="rdp"`.
pub(crate) fn argument(name: &str, value: Option<&str>) -> String {
    // In Python, `run_folder` is the parameter for new and for resumed runs.
    let name = if matches!(name, "out" | "resume") { "run_folder" } else { name };
    match value {
        None => name.to_owned(),
        Some(value) if value.parse::<f64>().is_ok() => format!("{name}={value}"),
        Some(value) => format!("{name}=\"{value}\""),
    }
}

/// The message, which begins with the name of the parameter if a quantity is out of range.
fn message(error: &Error) -> String {
    match accounting(error) {
        Some(AccountingError::OutOfRange { what, range, got, .. }) => {
            format!("{} must be {range}, got {got}", parameter(what))
        }
        _ => error.to_string(),
    }
}

/// The name of the Python parameter for a quantity.
fn parameter(quantity: &'static str) -> &'static str {
    match quantity {
        "clipping norm" => "max_grad_norm",
        "group size" => "group_size",
        "noise multiplier" => "noise_multiplier",
        "number of steps" => "steps",
        "sampling rate" => "sample_rate",
        same => same,
    }
}

fn is_about_the_budget(error: &Error) -> bool {
    let over = matches!(
        error,
        Error::Privacy(PrivacyError::OverBudget { .. })
            | Error::Algorithm(AlgorithmError::Privacy(PrivacyError::OverBudget { .. }))
    );
    // An error about the window is caused by the batch size, not by the budget.
    over || matches!(accounting(error), Some(AccountingError::NoSolution { what, .. }) if *what != "window")
}

/// The error of the accountant inside another error.
fn accounting(error: &Error) -> Option<&AccountingError> {
    match error {
        Error::Accounting(error)
        | Error::Privacy(PrivacyError::Accounting(error))
        | Error::Algorithm(
            AlgorithmError::Accounting(error) | AlgorithmError::Privacy(PrivacyError::Accounting(error)),
        ) => Some(error),
        _ => None,
    }
}
