//! Predictions as CSV.

use sordino_data::{DataError, Row};
use sordino_train::{DataFacts, class_of};

/// CSV with a line for each row: its id and the class with the probability of every class, or the numbers. Floats are
/// written with as many digits as are needed to read them back bit by bit.
///
/// There are `width` outputs for each row that could be read. A row without finite outputs has no prediction; the reason is stored in
/// the row.
pub(crate) fn table(facts: &DataFacts, rows: &mut [Row], outputs: &[f32], width: usize) -> String {
    let header = header(facts);
    let mut text = line(std::iter::once("id".to_owned()).chain(header.iter().cloned()));
    let mut outputs = outputs.chunks_exact(width);
    for (number, row) in (1..).zip(rows) {
        let found = if row.refused.is_none() { outputs.next() } else { None };
        let fields = match found {
            Some(outputs) if outputs.iter().all(|output| output.is_finite()) => fields(facts, outputs),
            Some(_) => {
                row.refused = Some(not_finite(number));
                vec![String::new(); header.len()]
            }
            None => vec![String::new(); header.len()],
        };
        text += &line(std::iter::once(row.id.clone()).chain(fields));
    }
    text
}

fn not_finite(row: usize) -> DataError {
    DataError::File {
        place: format!("row {row}"),
        problem: "the model's outputs are not finite".to_owned(),
        hint: "the row has extreme values, or the training has diverged: try a smaller learning rate"
            .to_owned(),
    }
}

fn header(facts: &DataFacts) -> Vec<String> {
    match facts.numbers.len() {
        0 => {
            let probabilities = facts.classes.iter().map(|class| format!("probability_{class}"));
            std::iter::once("prediction".to_owned()).chain(probabilities).collect()
        }
        1 => vec!["prediction".to_owned()],
        n => (1..=n).map(|number| format!("prediction_{number}")).collect(),
    }
}

/// The prediction for a record, from its outputs.
fn fields(facts: &DataFacts, outputs: &[f32]) -> Vec<String> {
    if !facts.numbers.is_empty() {
        let numbers = outputs.iter().zip(&facts.numbers).map(|(z, scale)| format!("{:?}", scale.undo(*z)));
        return numbers.collect();
    }
    let class = facts.classes[class_of(outputs) as usize].clone();
    let probabilities = probabilities(outputs).into_iter().map(|p| format!("{p:?}"));
    std::iter::once(class).chain(probabilities).collect()
}

/// The softmax, or for one output the logistic function: a probability for each class.
fn probabilities(outputs: &[f32]) -> Vec<f64> {
    let outputs: Vec<f64> = match outputs {
        [only] => vec![0.0, f64::from(*only)],
        _ => outputs.iter().copied().map(f64::from).collect(),
    };
    let greatest = outputs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let odds: Vec<f64> = outputs.iter().map(|output| (output - greatest).exp()).collect();
    let sum: f64 = odds.iter().sum();
    odds.into_iter().map(|odds| odds / sum).collect()
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
    use sordino_data::Encoding;
    use sordino_nn::Shape;

    use super::*;

    #[test]
    fn probabilities_keep_their_order_and_sum_to_one() {
        assert_eq!(probabilities(&[0.0]), [0.5, 0.5]);
        let wide = probabilities(&[-1000.0, 0.0, 1000.0]);
        assert_eq!(wide, [0.0, 0.0, 1.0]);
        let close = probabilities(&[1.0, 1.000_000_1, 0.5]);
        assert!(close[1] > close[0] && close[0] > close[2]);
        assert!((close.iter().sum::<f64>() - 1.0).abs() < 1e-15);
        // A very small probability is not rounded to 0.
        assert!(probabilities(&[-40.0])[1] > 0.0 && probabilities(&[40.0])[0] > 0.0);
    }

    #[test]
    fn a_row_without_finite_outputs_has_no_prediction() {
        let facts = DataFacts {
            input: Shape::Features(1),
            classes: ["a", "b"].map(str::to_owned).to_vec(),
            numbers: Vec::new(),
            encoding: Encoding::Text,
            test_records: 0,
        };
        let row = |id: &str, refused| Row { id: id.to_owned(), refused };
        let mut rows = [row("x", None), row("y", Some(not_finite(2))), row("z", None)];
        let text = table(&facts, &mut rows, &[f32::NAN, 0.0], 1);
        assert_eq!(text, "id,prediction,probability_a,probability_b\nx,,,\ny,,,\nz,a,0.5,0.5\n");
        assert!(rows[0].refused.is_some() && rows[2].refused.is_none());
    }

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        let fields = ["a", "b,c", "say \"x\"", ""].map(str::to_owned);
        assert_eq!(line(fields.into_iter()), "a,\"b,c\",\"say \"\"x\"\"\",\n");
    }
}
