//! Data sets from arrays: what is accepted, and the errors for what is refused.
#![expect(clippy::unwrap_used, reason = "the functions that tests share may fail as the tests may")]

use std::sync::Arc;

use sordino_data::{DataError, Dataset, Encoding, Labels, Scale};
use sordino_nn::{Inputs, RecordStore, Shape, Targets};

const X: [[f32; 2]; 3] = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]];

fn refused(data: Result<Dataset, DataError>) -> String {
    let error = data.unwrap_err();
    assert!(!error.hint().is_empty());
    error.to_string()
}

fn values(data: &Dataset) -> &[f32] {
    let Inputs::Dense(values) = data.inputs() else { panic!("dense") };
    values
}

fn classes(data: &Dataset) -> &[u32] {
    let Some(Targets::Classes(classes)) = data.targets() else { panic!("classes") };
    classes
}

#[test]
fn rows_of_any_kind_become_records() {
    let vectors: Vec<Vec<f32>> = X.iter().map(|row| row.to_vec()).collect();
    let slices: Vec<&[f32]> = X.iter().map(|row| &row[..]).collect();
    for data in [
        Dataset::from_rows(&X, &[true, false, true]).unwrap(),
        Dataset::from_rows(&vectors, &vec![true, false, true]).unwrap(),
        Dataset::from_rows(&slices, &[true, false, true][..]).unwrap(),
    ] {
        assert_eq!((data.len(), data.shape()), (3, Shape::Features(2)));
        assert_eq!(values(&data), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(
            (classes(&data), data.classes()),
            (&[1, 0, 1][..], &["false", "true"].map(str::to_owned)[..])
        );
    }
}

#[test]
fn numbers_are_predicted_as_they_are() {
    let data = Dataset::from_rows(&X, &[10.0, -0.5, 3.0]).unwrap();
    let Some(Targets::Values { values, width: 1 }) = data.targets() else { panic!("numbers") };
    assert_eq!(values, [10.0, -0.5, 3.0]);
    assert_eq!(data.scales(), [sordino_data::Scale::NONE]);
}

#[test]
fn classes_are_those_declared_and_not_those_found() {
    let data = Dataset::from_rows(&X, Labels::classes(&[1, 1, 1], 4)).unwrap();
    assert_eq!(
        (classes(&data), data.classes()),
        (&[1, 1, 1][..], &["0", "1", "2", "3"].map(str::to_owned)[..])
    );
    let data = Dataset::from_rows(&X, Labels::named(&["cat", "dog", "cow"], &["dog", "dog", "cat"])).unwrap();
    assert_eq!((classes(&data), data.classes().len()), (&[1, 1, 0][..], 3));
}

#[test]
fn records_to_predict_have_no_targets() {
    let data = Dataset::unlabelled(&X).unwrap();
    assert!(data.targets().is_none() && data.classes().is_empty());
}

#[test]
fn a_flat_buffer_is_not_copied() {
    let pixels = vec![0.25; 2 * 12];
    let address = pixels.as_ptr();
    let shape = Shape::Image { channels: 3, height: 2, width: 2 };
    let data = Dataset::from_flat(pixels, shape, Labels::none()).unwrap();
    assert_eq!((data.len(), data.shape(), values(&data).as_ptr()), (2, shape, address));
}

#[test]
fn no_records_are_refused() {
    let none: [[f32; 2]; 0] = [];
    assert_eq!(refused(Dataset::unlabelled(&none)), "x: there are no records");
    assert_eq!(refused(Dataset::from_rows(&none, &[true])), "x: there are no records");
    assert_eq!(refused(Dataset::from_flat(vec![], Shape::Features(2), &[true])), "x: there are no records");
}

#[test]
fn records_without_values_are_refused() {
    let expected =
        "shape of a record must be features or an image with 1 to 2147483648 values, got Features(0)";
    assert_eq!(refused(Dataset::unlabelled(&[[], []])), expected);
    let huge = Shape::Image { channels: usize::MAX, height: 2, width: 2 };
    let too_long = Shape::Features((1 << 31) + 1);
    for shape in
        [huge, too_long, Shape::Sequence { steps: 2, width: 1 }, Shape::Tokens { steps: 2, vocabulary: 9 }]
    {
        let error = refused(Dataset::from_flat(vec![1.0; 4], shape, Labels::none()));
        assert!(error.starts_with("shape of a record must be"), "{error}");
    }
}

#[test]
fn ragged_rows_are_refused() {
    let ragged = [vec![1.0, 2.0], vec![3.0, 4.0], vec![5.0]];
    assert_eq!(refused(Dataset::unlabelled(&ragged)), "x[2]: the row has length 1, but x[0] has length 2");
    let error = refused(Dataset::from_flat(vec![0.0; 7], Shape::Features(2), Labels::none()));
    assert_eq!(error, "values: 7 values are not a whole number of records of 2 values");
}

#[test]
fn values_that_are_not_finite_are_refused_by_their_place() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let error = refused(Dataset::unlabelled(&[[1.0, 2.0], [3.0, bad]]));
        assert_eq!(error, format!("x[1][1]: must be a finite number, got {bad}"));
        let error = refused(Dataset::from_flat(vec![0.0, bad], Shape::Features(1), Labels::none()));
        assert_eq!(error, format!("values[1]: must be a finite number, got {bad}"));
        let error = refused(Dataset::from_rows(&X, &[0.0, bad, 0.0]));
        assert_eq!(error, format!("y[1]: must be a finite number, got {bad}"));
    }
}

#[test]
fn one_label_for_each_record_is_required() {
    for labels in [&[true, false][..], &[true; 4], &[]] {
        let error = refused(Dataset::from_rows(&X, labels));
        assert_eq!(error, format!("y: there are {} labels for 3 records", labels.len()));
    }
}

#[test]
fn labels_outside_of_the_declared_classes_are_refused() {
    let error = refused(Dataset::from_rows(&X, Labels::classes(&[9, 10, 0], 10)));
    assert_eq!(error, "y[1]: must be a class from 0 to 9, got 10");
    let error = refused(Dataset::from_rows(&X, Labels::classes(&[0, 0, u32::MAX], 65536)));
    assert_eq!(error, "y[2]: must be a class from 0 to 65535, got 4294967295");
    let error = refused(Dataset::from_rows(&X, Labels::named(&["cat", "dog"], &["dog", "Cat", "cat"])));
    assert_eq!(error, "y[1]: must be one of `cat`, `dog`, got `Cat`");
}

#[test]
fn impossible_declarations_of_classes_are_refused() {
    for count in [0, 1, 65537, usize::MAX] {
        let error = refused(Dataset::from_rows(&X, Labels::classes(&[0, 0, 0], count)));
        assert_eq!(error, format!("number of classes must be 2 to 65536, got {count}"));
    }
    let error = refused(Dataset::from_rows(&X, Labels::named(&["cat"], &["cat"; 3])));
    assert_eq!(error, "number of classes must be 2 to 65536, got 1");
    let error = refused(Dataset::from_rows(&X, Labels::named(&["cat", "dog", "cat"], &["cat"; 3])));
    assert_eq!(error, "names of classes must be different, got `cat` twice");
}

#[test]
fn debug_of_labels_shows_no_label() {
    let labels = Labels::from(&[4711.0, 4712.0]);
    assert_eq!(format!("{labels:?}"), "Labels { labels: \"1 numbers\", count: Some(2) }");
    assert_eq!(format!("{:?}", Labels::named(&["a", "b"], &["secret"])), "Labels { refused }");
}

#[cfg(feature = "ndarray")]
mod ndarray_views {
    use ndarray::{Array, Array1, array};

    use super::*;

    #[test]
    fn a_view_is_read_in_logical_order_whatever_its_strides() {
        let x = array![[1.0, 3.0, 5.0], [2.0, 4.0, 6.0]];
        let data = Dataset::from_array(x.t(), array![true, false, true].view()).unwrap();
        assert_eq!(values(&data), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!((data.len(), classes(&data)), (3, &[1, 0, 1][..]));
    }

    #[test]
    fn three_and_four_axes_are_images() {
        let shape = |channels| Shape::Image { channels, height: 2, width: 5 };
        let labels: Array1<u32> = array![3, 1];
        let grey = Array::<f32, _>::zeros((2, 2, 5));
        let data = Dataset::from_array(grey.view(), Labels::classes(&labels, 4)).unwrap();
        assert_eq!((data.shape(), data.len()), (shape(1), 2));
        let colour = Array::<f32, _>::zeros((2, 3, 2, 5));
        let data = Dataset::from_array(colour.view(), Labels::none()).unwrap();
        assert_eq!((data.shape(), data.len()), (shape(3), 2));
    }

    #[test]
    fn bad_arrays_are_refused_by_their_place() {
        let mut x = Array::<f32, _>::zeros((2, 2, 5));
        x[[1, 0, 2]] = f32::NAN;
        let error = refused(Dataset::from_array(x.view(), Labels::none()));
        assert_eq!(error, "x[1, 0, 2]: must be a finite number, got NaN");
        let error = refused(Dataset::from_array(array![1.0_f32, 2.0].view(), Labels::none()));
        assert_eq!(error, "number of axes of x must be 2 (features), 3 or 4 (images), got 1");
        let empty = Array::<f32, _>::zeros((0, 4));
        assert_eq!(refused(Dataset::from_array(empty.view(), Labels::none())), "x: there are no records");
    }
}

/// Record `i` is `[i, 1]`, and the value that is not finite, if there is one.
#[derive(Debug)]
struct Counting {
    bad: Option<(usize, f32)>,
}

impl RecordStore for Counting {
    fn shape(&self) -> Shape {
        Shape::Features(2)
    }

    fn records(&self) -> usize {
        1000
    }

    fn read_values(&self, record: usize, values: &mut [f32]) -> std::io::Result<()> {
        values.copy_from_slice(&[record as f32, 1.0]);
        if let Some((_, value)) = self.bad.filter(|(place, _)| *place <= record) {
            values[1] = value;
        }
        Ok(())
    }
}

fn stored(bad: Option<(usize, f32)>, labels: Labels) -> Result<Dataset, DataError> {
    let place = |record, place| format!("x[{record}, {place}]");
    Dataset::from_store(Arc::new(Counting { bad }), Encoding::Floats, labels, place)
}

#[test]
fn records_of_a_store_are_read_when_they_are_needed() {
    let data = stored(None, Labels::classes(&[1; 1000], 2)).unwrap();
    assert_eq!((data.len(), data.shape(), data.encoding()), (1000, Shape::Features(2), Encoding::Floats));
    let (train, test) = data.split(0.2, 0).unwrap();
    assert_eq!((train.len(), test.unwrap().len()), (800, 200));
    let Inputs::Stored(store) = train.inputs() else { panic!("stored") };
    let mut values = [0.0; 2];
    store.read_values(799, &mut values).unwrap();
    assert!(values[0] >= 799.0 && values[1] == 1.0);
}

/// Record `i` is 3 steps of 2 values, all of them `i`.
#[derive(Debug)]
struct Steps;

impl RecordStore for Steps {
    fn shape(&self) -> Shape {
        Shape::Sequence { steps: 3, width: 2 }
    }
    fn records(&self) -> usize {
        4
    }
    fn read_values(&self, record: usize, values: &mut [f32]) -> std::io::Result<()> {
        assert_eq!(values.len(), 6);
        values.fill(record as f32);
        Ok(())
    }
}

#[test]
fn a_store_may_have_sequences() {
    let place = |_, _| "x".to_owned();
    let data =
        Dataset::from_store(Arc::new(Steps), Encoding::Floats, Labels::classes(&[1; 4], 2), place).unwrap();
    assert_eq!((data.len(), data.shape()), (4, Shape::Sequence { steps: 3, width: 2 }));
}

#[test]
fn the_first_value_of_a_store_that_is_not_finite_is_named() {
    for value in [f32::NAN, f32::INFINITY] {
        let error = refused(stored(Some((617, value)), Labels::none()));
        assert_eq!(error, format!("x[617, 1]: must be a finite number, got {value}"));
    }
    let error = refused(stored(None, Labels::classes(&[1], 2)));
    assert_eq!(error, "y: there are 1 labels for 1000 records");
}

#[test]
fn numbered_classes_have_names() {
    let data = Dataset::from_rows(&X, Labels::numbered(&["cat", "dog"], &[1, 0, 1])).unwrap();
    assert_eq!((classes(&data), data.classes()), (&[1, 0, 1][..], &["cat", "dog"].map(str::to_owned)[..]));
    let error = refused(Dataset::from_rows(&X, Labels::numbered(&["cat", "dog"], &[1, 0, 2])));
    assert_eq!(error, "y[2]: must be a class from 0 to 1, got 2");
    assert!(Dataset::from_rows(&X, Labels::numbered(&["cat", "cat"], &[1, 0, 1])).is_err());
    assert!(Dataset::from_rows(&X, Labels::numbered(&["cat"], &[0, 0, 0])).is_err());
}

#[test]
fn scaled_numbers_are_stored_in_their_public_range() {
    let scales = [Scale::of_range(0.0, 10.0).unwrap(), Scale::of_range(-1.0, 3.0).unwrap()];
    let data = Dataset::from_rows(&X, Labels::scaled(&[0.0, -1.0, 10.0, 3.0, 5.0, 1.0], &scales)).unwrap();
    let Some(Targets::Values { values, width: 2 }) = data.targets() else { panic!("numbers") };
    assert_eq!(values, [-1.0, -1.0, 1.0, 1.0, 0.0, 0.0]);
    assert_eq!((data.scales()[1].undo(-1.0), data.scales()[1].undo(1.0)), (-1.0, 3.0));
    let error =
        refused(Dataset::from_rows(&X, Labels::scaled(&[0.0, 0.0, 0.0, f64::NAN, 0.0, 0.0], &scales)));
    assert_eq!(error, "y[1, 1]: must be a finite number, got NaN");
    for range in [(1.0, 1.0), (2.0, 1.0), (f64::NEG_INFINITY, 0.0), (f64::NAN, 1.0), (-f64::MAX, f64::MAX)] {
        // The half of a range is finite wherever both ends are.
        assert_eq!(
            Scale::of_range(range.0, range.1).is_err(),
            !(range.0 < range.1 && range.0.is_finite()),
            "{range:?}"
        );
    }
    for scales in [&[][..], &[Scale { center: 0.0, scale: 0.0 }], &scales] {
        assert!(Dataset::from_rows(&X, Labels::scaled(&[1.0, 2.0, 3.0], scales)).is_err());
    }
}

#[test]
fn parts_of_records_with_observed_classes_have_observed_classes() {
    let data = Dataset::from_rows(&X, &[true, false, true]).unwrap();
    assert!(!data.has_observed_classes());
    let (train, test) = data.with_observed_classes().split(0.4, 0).unwrap();
    assert!(train.has_observed_classes() && test.unwrap().has_observed_classes());
    assert!(train.with_inputs(Shape::Features(1), vec![0.0; 2], None).unwrap().has_observed_classes());
}
