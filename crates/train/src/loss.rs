//! The loss of a run, and the number of outputs that it needs.

use sordino_nn::{Loss, Shape};

use crate::{DataFacts, LossName, TrainError};

/// The number of outputs and the loss for this data: those of the loss that the user chose for two classes, or the default.
pub(crate) fn outputs_and_loss(
    facts: &DataFacts,
    is_linear: bool,
    chosen: Option<LossName>,
) -> Result<(usize, Loss), TrainError> {
    let classes = facts.classes.len();
    Ok(match (chosen, classes, facts.input) {
        (Some(loss), 2, _) => (1, loss.into()),
        (Some(_), _, _) => return Err(not_two_classes(facts)),
        // Tokens without targets are their own targets.
        (_, 0, Shape::Tokens { .. }) if facts.numbers.is_empty() => (0, Loss::NextToken),
        (_, 0, _) => (facts.numbers.len(), Loss::SquaredError),
        (_, 2, _) if is_linear => (1, Loss::Logistic),
        _ => (classes, Loss::cross_entropy()),
    })
}

/// Why a loss for two classes does not fit this data.
fn not_two_classes(facts: &DataFacts) -> TrainError {
    let (targets, hint) = match (facts.classes.len(), facts.numbers.len()) {
        (0, 0) => ("no targets".to_owned(), "leave out {loss}: a language model predicts the next token"),
        (0, _) => (
            "targets that are numbers".to_owned(),
            "leave out {loss}: the loss for numbers is the squared error",
        ),
        (classes, _) => {
            (format!("{classes} classes"), "leave out {loss}: cross-entropy is for any number of classes")
        }
    };
    TrainError::refused(
        format!("the losses logistic and hinge are for two classes, but the data has {targets}"),
        hint,
    )
}
