//! NumPy arrays as data sets. Arrays of float32 and uint8 are not copied.
#![expect(unsafe_code, reason = "the memory of an array is read in place")]

use std::{
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU32, Ordering},
    },
};

use numpy::{
    Element, PyArrayDyn, PyArrayMethods, PyReadonlyArray1, PyReadonlyArrayDyn, PyUntypedArrayMethods,
};
use pyo3::{exceptions::PyTypeError, prelude::*};
use sordino::{
    Dataset, Labels, Shape,
    data::{DataError, Encoding, Scale},
    nn::RecordStore,
};

use crate::{errors::to_python, threads::run_short};

/// Records for training or prediction.
#[pyclass(frozen, name = "Data", module = "sordino._sordino")]
pub(crate) struct Data {
    pub(crate) dataset: Dataset,
}

#[pymethods]
impl Data {
    /// Records of an array: `[n, features]`, `[n, height, width]`, `[n, channels, height, width]` or `[n, height, width, channels]`.
    ///
    /// `x` is a C-contiguous array of float32 or uint8, and is not copied. Pixels of type uint8 are divided by 255. With `vocabulary`, the rows of
    /// `x` are sequences of tokens of type uint32.
    ///
    /// `shape` is the shape of a record in JSON, as in the description of a network. Without it, the axes of `x` determine the shape.
    ///
    /// With `classes`, `y` has the number of each record's class; otherwise numbers to predict, in public `ranges`. `ids` identify the unit of
    /// privacy of each record. `preparation` is JSON with what prediction needs to make records in the same way; it is stored with the model.
    #[new]
    #[pyo3(signature = (x, y=None, *, classes=None, observed_classes=false, ranges=None, vocabulary=None, shape=None, unit=None, ids=None, records_per_unit=None, preparation=None))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn new(
        x: &Bound<'_, PyAny>,
        y: Option<&Bound<'_, PyAny>>,
        classes: Option<Vec<String>>,
        observed_classes: bool,
        ranges: Option<Vec<(f64, f64)>>,
        vocabulary: Option<usize>,
        shape: Option<&str>,
        unit: Option<&str>,
        ids: Option<Vec<String>>,
        records_per_unit: Option<usize>,
        preparation: Option<&str>,
    ) -> PyResult<Self> {
        let labels = match (y, classes) {
            (None, _) => Labels::none(),
            (Some(y), Some(names)) => {
                Labels::numbered(&names, y.extract::<PyReadonlyArray1<'_, u32>>()?.as_slice()?)
            }
            (Some(y), None) => numbers(y, ranges)?,
        };
        let mut dataset = match vocabulary {
            Some(vocabulary) => sequences(x, vocabulary, labels)?,
            None => records(x, shape, labels)?,
        };
        if observed_classes {
            dataset = dataset.with_observed_classes();
        }
        if let Some(text) = preparation {
            let preparation = serde_json::from_str(text)
                .map_err(|error| PyTypeError::new_err(format!("the preparation: {error}")))?;
            dataset = dataset.prepared(preparation);
        }
        if let Some(ids) = ids {
            dataset = dataset.in_units(unit.unwrap_or("unit"), &ids).map_err(to_python)?;
        }
        if let Some(most) = records_per_unit {
            dataset = dataset.limit_units(most).map_err(to_python)?;
        }
        Ok(Self { dataset })
    }

    fn __len__(&self) -> usize {
        self.dataset.len()
    }

    fn __repr__(&self) -> String {
        format!("<Data: {} records of {}>", self.dataset.len(), self.dataset.shape())
    }
}

/// The targets of a regression: one or several for each record.
fn numbers(y: &Bound<'_, PyAny>, ranges: Option<Vec<(f64, f64)>>) -> PyResult<Labels> {
    let y: PyReadonlyArrayDyn<'_, f64> = y.extract()?;
    let width = y.shape().get(1).copied().unwrap_or(1);
    let scales = match ranges {
        None => vec![Scale::NONE; width],
        Some(ranges) => {
            let scales = ranges.iter().map(|&(low, high)| Scale::of_range(low, high));
            scales.collect::<Result<Vec<_>, DataError>>().map_err(to_python)?
        }
    };
    if scales.len() != width {
        return Err(PyTypeError::new_err(format!(
            "y has {width} targets for each record, got {} ranges",
            scales.len()
        )));
    }
    Ok(Labels::scaled(y.as_slice()?, &scales))
}

fn records(x: &Bound<'_, PyAny>, shape: Option<&str>, labels: Labels) -> PyResult<Dataset> {
    let (store, layout) = if let Ok(floats) = x.cast::<PyArrayDyn<f32>>() {
        let layout = Layout::new(floats.shape(), shape)?;
        (Values::Floats(Memory::new(floats)?), layout)
    } else if let Ok(bytes) = x.cast::<PyArrayDyn<u8>>() {
        let layout = Layout::new(bytes.shape(), shape)?;
        let divisor = if layout.is_image() { 255.0 } else { 1.0 };
        // The same division as in files of bytes.
        let table = Box::new(std::array::from_fn(|byte| (byte as f64 / divisor) as f32));
        (Values::Bytes(Memory::new(bytes)?, table), layout)
    } else {
        return Err(PyTypeError::new_err("x must be an array of float32 or uint8"));
    };
    let encoding = match &store {
        Values::Floats(_) => Encoding::Floats,
        Values::Bytes(..) if layout.is_image() => Encoding::Bytes,
        Values::Bytes(..) => Encoding::Integers,
    };
    let place_of = layout.clone();
    let store = Arc::new(ArrayStore { values: store, layout });
    let made = run_short(x.py(), || {
        Dataset::from_store(store, encoding, labels, |record, place| place_of.element(record, place))
    })?;
    made.map_err(to_python)
}

fn sequences(x: &Bound<'_, PyAny>, vocabulary: usize, labels: Labels) -> PyResult<Dataset> {
    let x: PyReadonlyArrayDyn<'_, u32> = x.extract()?;
    let &[records, steps] = x.shape() else {
        return Err(PyTypeError::new_err("tokens must be an array with two axes"));
    };
    let starts = (0..=records).map(|record| record * steps).collect();
    Dataset::from_tokens(x.as_slice()?.to_vec(), starts, steps, vocabulary, labels).map_err(to_python)
}

/// How the axes of an array become records.
#[derive(Debug, Clone)]
struct Layout {
    axes: Vec<usize>,
    records: usize,
    shape: Shape,
    /// The number of channels of an image whose channels come last.
    channels_last: Option<usize>,
}

impl Layout {
    fn new(axes: &[usize], shape: Option<&str>) -> PyResult<Self> {
        let Some(text) = shape else { return Self::of_axes(axes) };
        let shape: Shape = serde_json::from_str(text)
            .map_err(|error| PyTypeError::new_err(format!("the shape of a record: {error}")))?;
        match axes {
            &[records, ref rest @ ..] if rest.iter().product::<usize>() == shape.len() => {
                Ok(Self { axes: axes.to_vec(), records, shape, channels_last: None })
            }
            _ => Err(PyTypeError::new_err(format!("x must have records of {shape}, got axes {axes:?}"))),
        }
    }

    /// The same rules as for NPY files.
    fn of_axes(axes: &[usize]) -> PyResult<Self> {
        let mut channels_last = None;
        let shape = match *axes {
            [_, features] => Shape::Features(features),
            [_, height, width] => Shape::Image { channels: 1, height, width },
            [_, height, width, channels @ (1 | 3 | 4)] if height >= 8 && width >= 8 => {
                channels_last = Some(channels);
                Shape::Image { channels, height, width }
            }
            [_, channels, height, width] => Shape::Image { channels, height, width },
            _ => return Err(PyTypeError::new_err(format!("x must have 2 to 4 axes, got {}", axes.len()))),
        };
        Ok(Self { axes: axes.to_vec(), records: axes[0], shape, channels_last })
    }

    fn is_image(&self) -> bool {
        matches!(self.shape, Shape::Image { .. })
    }

    /// The name of a value in messages: `x[3, 2]`.
    fn element(&self, record: usize, place: usize) -> String {
        let mut rest = match self.channels_last {
            Some(channels) => {
                let plane = self.shape.len() / channels;
                place % plane * channels + place / plane
            }
            None => place,
        };
        let mut indices = vec![record; self.axes.len()];
        for (index, length) in indices.iter_mut().zip(&self.axes).skip(1).rev() {
            (*index, rest) = (rest % length, rest / length);
        }
        format!("x{indices:?}")
    }
}

/// The records of an array. Other Python threads may change the array at any time.
///
/// # Guarantees
/// A pass copies a record into buffers of the engine, one for each point at which gradients are computed. The norm of the gradient and the
/// contribution to the sum are computed from the same buffers. A record that is changed at any time therefore contributes at most the clipping
/// norm. A record that became NaN or infinite contributes nothing, as [`sordino::nn::Engine`] states. So the guarantee holds for the values that
/// were read.
struct ArrayStore {
    values: Values,
    layout: Layout,
}

enum Values {
    Floats(Memory<f32>),
    /// The value of each byte.
    Bytes(Memory<u8>, Box<[f32; 256]>),
}

impl RecordStore for ArrayStore {
    fn shape(&self) -> Shape {
        self.layout.shape
    }

    fn records(&self) -> usize {
        self.layout.records
    }

    fn read_values(&self, record: usize, values: &mut [f32]) -> io::Result<()> {
        let start = record * self.layout.shape.len();
        match &self.values {
            Values::Floats(memory) => memory.read(start, values, |value| value)?,
            Values::Bytes(memory, table) => memory.read(start, values, |byte| table[usize::from(byte)])?,
        }
        if let Some(channels) = self.layout.channels_last {
            channels_first(values, channels);
        }
        Ok(())
    }
}

impl fmt::Debug for ArrayStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArrayStore").field("layout", &self.layout).finish_non_exhaustive()
    }
}

/// Moves the channels of an image from the last axis to the first.
fn channels_first(image: &mut [f32], channels: usize) {
    let before = image.to_vec();
    for (channel, plane) in image.chunks_exact_mut(before.len() / channels).enumerate() {
        plane.iter_mut().zip(before[channel..].iter().step_by(channels)).for_each(|(to, from)| *to = *from);
    }
}

/// The memory of a C-contiguous array.
struct Memory<T> {
    start: *const T,
    len: usize,
    /// A reference to the array, so that its memory is not freed.
    _array: Py<PyArrayDyn<T>>,
}

// SAFETY: the memory is not tied to a thread, and it is only read, by atomic loads.
unsafe impl<T> Send for Memory<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Memory<T> {}

/// Types that are read by an atomic load.
trait Shared: Element + Copy {
    /// # Safety
    /// The place must be aligned and readable.
    unsafe fn load(place: *const Self) -> Self;
}

impl Shared for f32 {
    unsafe fn load(place: *const f32) -> f32 {
        // SAFETY: the caller guarantees an aligned, readable place, and `AtomicU32` has the layout of `f32`. Nothing is written.
        f32::from_bits(unsafe { AtomicU32::from_ptr(place.cast_mut().cast()) }.load(Ordering::Relaxed))
    }
}

impl Shared for u8 {
    unsafe fn load(place: *const u8) -> u8 {
        // SAFETY: as for `f32`.
        unsafe { AtomicU8::from_ptr(place.cast_mut()) }.load(Ordering::Relaxed)
    }
}

impl<T: Shared> Memory<T> {
    fn new(array: &Bound<'_, PyArrayDyn<T>>) -> PyResult<Self> {
        let start: *const T = array.data();
        if !array.is_c_contiguous() || !start.is_aligned() {
            return Err(PyTypeError::new_err("x must be C-contiguous and aligned"));
        }
        Ok(Self { start, len: array.len(), _array: array.clone().unbind() })
    }

    /// Reads the values from `start` on.
    fn read(&self, start: usize, values: &mut [f32], convert: impl Fn(T) -> f32) -> io::Result<()> {
        if start.checked_add(values.len()).is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        for (place, value) in values.iter_mut().enumerate() {
            // SAFETY: `new` checked that the array is contiguous and aligned, and the index is below its length. The reference to the
            // array keeps its memory alive, and NumPy does not move the memory of an array that has other references (`ndarray.resize`
            // fails, unless it is called with `refcheck=False`). Another thread may write at the same time: the load is atomic, so it gives an old
            // or a new value, and every pattern of bits is a value of `T`.
            *value = convert(unsafe { T::load(self.start.add(start + place)) });
        }
        Ok(())
    }
}
