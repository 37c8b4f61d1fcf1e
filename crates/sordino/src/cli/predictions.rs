//! Predictions as CSV.

use crate::{Fitted, Prediction};
use sordino_data::{DataError, Row};

/// CSV with a line for each row: its id, and the continuation that a language model generated.
pub(crate) fn texts(rows: &[Row], texts: Vec<String>) -> String {
    let mut texts = texts.into_iter();
    let mut text = line(["id", "prediction"].map(str::to_owned).into_iter());
    for row in rows {
        let written = if row.refused.is_none() { texts.next() } else { None };
        text += &line([row.id.clone(), written.unwrap_or_default()].into_iter());
    }
    text
}

/// CSV with a line for each row: its id, and the class with the probability of every class (if the model has probabilities) or the predicted
/// numbers. Floats are written with as many digits as are needed to read them back exactly.
///
/// There is a prediction for each row that could be read. The reason why a row has none is stored in the row.
pub(crate) fn table(fitted: &Fitted, rows: &mut [Row], predictions: &[Prediction]) -> String {
    let header = header(fitted);
    let mut text = line(std::iter::once("id".to_owned()).chain(header.iter().cloned()));
    let mut predictions = predictions.iter();
    for (number, row) in (1..).zip(rows) {
        let prediction = if row.refused.is_none() { predictions.next() } else { None };
        if prediction == Some(&Prediction::NotFinite) {
            row.refused = Some(not_finite(number));
        }
        let fields = match prediction {
            Some(Prediction::Class { class, probabilities }) => {
                let probabilities = probabilities.iter().map(|p| format!("{p:?}"));
                std::iter::once(fitted.classes()[*class].clone()).chain(probabilities).collect()
            }
            Some(Prediction::Numbers(numbers)) => {
                numbers.iter().map(|number| format!("{number:?}")).collect()
            }
            Some(Prediction::NotFinite) | None => vec![String::new(); header.len()],
        };
        text += &line(std::iter::once(row.id.clone()).chain(fields));
    }
    text
}

fn not_finite(row: usize) -> DataError {
    DataError::File {
        place: format!("row {row}"),
        problem: "the model's outputs are not finite".to_owned(),
        hint: "the row has extreme values, or training has diverged: try a smaller {learning_rate}"
            .to_owned(),
    }
}

fn header(fitted: &Fitted) -> Vec<String> {
    match fitted.facts().numbers.len() {
        0 if !fitted.has_probabilities() => vec!["prediction".to_owned()],
        0 => {
            let probabilities = fitted.classes().iter().map(|class| format!("probability_{class}"));
            std::iter::once("prediction".to_owned()).chain(probabilities).collect()
        }
        1 => vec!["prediction".to_owned()],
        n => (1..=n).map(|number| format!("prediction_{number}")).collect(),
    }
}

/// A line of CSV.
fn line(fields: impl Iterator<Item = String>) -> String {
    fields.map(|field| quoted(&field)).collect::<Vec<_>>().join(",") + "\n"
}

/// A field of CSV.
fn quoted(field: &str) -> String {
    match field.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use crate::{Dataset, Model, Trainer};

    use super::*;

    #[test]
    fn a_row_without_finite_outputs_has_no_prediction() {
        let (x, y) = ([[0.0], [1.0]].repeat(10), [false, true].repeat(10));
        let data = Dataset::from_rows(&x, &y).unwrap();
        let trainer = Trainer::new(Model::logistic()).batch_size(5).seed(1);
        let fitted = trainer.steps(1).unwrap().fit(&data).unwrap();
        let row = |id: &str, refused| Row { id: id.to_owned(), refused };
        let mut rows = [row("x", None), row("y", Some(not_finite(2))), row("z", None)];
        let class = Prediction::Class { class: 0, probabilities: vec![0.5, 0.5] };
        let text = table(&fitted, &mut rows, &[Prediction::NotFinite, class]);
        assert_eq!(text, "id,prediction,probability_false,probability_true\nx,,,\ny,,,\nz,false,0.5,0.5\n");
        assert!(rows[0].refused.is_some() && rows[2].refused.is_none());
    }

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        let fields = ["a", "b,c", "say \"x\"", ""].map(str::to_owned);
        assert_eq!(line(fields.into_iter()), "a,\"b,c\",\"say \"\"x\"\"\",\n");
    }
}
