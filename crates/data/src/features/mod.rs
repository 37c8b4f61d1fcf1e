//! Fixed public transforms of records, computed once before training.

mod colours;
mod dead_leaves;
mod halves;
mod jacobi;
mod mirror;
mod morlet;
mod normalisation;
mod options;
mod scattering;
#[cfg(test)]
mod tests;
mod whitening;

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use half::f16;
use rayon::prelude::*;
use sordino_nn::{Inputs, Shape};

use self::halves::{HalfRecords, to_halves};
use self::scattering::{Grid, PATHS, SHRINK, Scattering, Scratch};
use self::whitening::{MapSize, Whitening};
use crate::dataset::{Dataset, MAX_VALUES, check_size};
use crate::error::DataError;
use crate::input::unreadable;
use crate::stored::StoredRecords;

pub use normalisation::Normalisation;
pub use options::{Colours, FeatureConfig, ScatteringOptions};

/// A fixed public transform of records of one shape.
pub struct Features {
    config: FeatureConfig,
    options: Completed,
    input: Shape,
    map: MapSize,
    scattering: Scattering,
    /// Made when the first record is transformed.
    whitening: OnceLock<Option<Whitening>>,
}

/// The options, all set.
#[derive(Debug, Clone, Copy)]
struct Completed {
    is_opponent: bool,
    mirror: bool,
    whiten: f64,
    smooth: f64,
    normalise: Normalisation,
}

/// Buffers of one thread.
#[derive(Default)]
struct Buffers {
    image: Vec<f32>,
    scratch: Scratch,
    map: Vec<f32>,
    other: Vec<f32>,
}

impl Features {
    /// The transform with these options for records of this shape.
    ///
    /// # Errors
    /// As for [`FeatureConfig::completed`].
    pub fn new(config: &FeatureConfig, input: Shape) -> Result<Features, DataError> {
        let config = config.completed(input)?;
        let (FeatureConfig::Scattering(options), Shape::Image { channels, height, width }) = (config, input)
        else {
            unreachable!("completed accepts images only");
        };
        let mirror = options.mirror.unwrap_or_default();
        let grid = if mirror { Grid::Mirror } else { Grid::Corner };
        Ok(Features {
            config,
            options: Completed {
                is_opponent: options.colours == Some(Colours::Opponent),
                mirror,
                whiten: options.whiten.unwrap_or_default(),
                smooth: options.smooth.unwrap_or_default(),
                normalise: options.normalise.unwrap_or(Normalisation::None),
            },
            input,
            map: MapSize { channels: channels * PATHS, height: height / SHRINK, width: width / SHRINK },
            scattering: Scattering::new(height, width, grid),
            whitening: OnceLock::new(),
        })
    }

    /// The same as [`new`](Self::new), but the transform is shared within the process, because its statistics take a few seconds to compute.
    /// Only the most recently created transforms are kept.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn shared(config: &FeatureConfig, input: Shape) -> Result<Arc<Features>, DataError> {
        static SHARED: Mutex<Vec<Arc<Features>>> = Mutex::new(Vec::new());
        let config = config.completed(input)?;
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = shared.iter().find(|known| (known.config, known.input) == (config, input)) {
            return Ok(found.clone());
        }
        let features = Arc::new(Self::new(&config, input)?);
        shared.truncate(7);
        shared.insert(0, features.clone());
        Ok(features)
    }

    /// The whitening, if there is one. Its statistics are computed when they are first needed.
    fn whitening(&self) -> Option<&Whitening> {
        let Completed { whiten, smooth, mirror, .. } = self.options;
        let made = self.whitening.get_or_init(|| {
            let Shape::Image { channels, height, width } = self.input else { return None };
            let map = |image: &[f32]| {
                let mut buffers = Buffers { image: image.to_vec(), ..Buffers::default() };
                self.scatter(&mut buffers);
                buffers.map
            };
            let image = (channels, height, width);
            let make = || Whitening::new(map, image, self.map, whiten, smooth, mirror);
            // In a pool of its own, started from a thread of its own: a worker of the caller's pool that waited here would take other
            // work, which could need this whitening.
            let make = || match rayon::ThreadPoolBuilder::new().build() {
                Ok(pool) => pool.install(make),
                Err(_) => make(),
            };
            (whiten > 0.0 || smooth > 0.0)
                .then(|| std::thread::scope(|scope| scope.spawn(make).join()))
                .map(|made| made.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        made.as_ref()
    }

    /// The transform with values for all options.
    pub fn config(&self) -> &FeatureConfig {
        &self.config
    }

    /// The shape of the records that it reads.
    pub fn input(&self) -> Shape {
        self.input
    }

    /// The shape of its outputs.
    pub fn output(&self) -> Shape {
        let MapSize { channels, height, width } = self.map;
        Shape::Image {
            channels,
            height,
            width: if self.options.mirror { mirror::folded_width(width) } else { width },
        }
    }

    /// Transforms all records. Labels and units do not change.
    ///
    /// # Errors
    /// Records of another shape or that cannot be read; too many values.
    pub fn apply(&self, data: &Dataset) -> Result<Dataset, DataError> {
        self.apply_as(data, self.output())
    }

    /// The same, as vectors instead of maps: the channels lie one after another. Models without convolutions read vectors faster.
    ///
    /// # Errors
    /// As for [`apply`](Self::apply).
    pub fn apply_flat(&self, data: &Dataset) -> Result<Dataset, DataError> {
        self.apply_as(data, Shape::Features(self.output().len()))
    }

    fn apply_as(&self, data: &Dataset, shape: Shape) -> Result<Dataset, DataError> {
        if data.shape() != self.input {
            return Err(DataError::file(
                "features",
                format!("the records are {}, but the transform reads {}", data.shape(), self.input),
                "give records of the shape of the training records",
            ));
        }
        let width = self.output().len();
        // Half precision: twice as many values have the same size.
        check_size(|| "features".to_owned(), data.len().saturating_mul(width) / 2)?;
        debug_assert!(width <= MAX_VALUES);
        let mut values = vec![f16::ZERO; data.len() * width];
        // Computed before the records are distributed, so that no thread waits for the statistics while it holds a task that they need.
        self.whitening();
        let inputs = data.inputs();
        let pixels = self.input.len();
        values.par_chunks_exact_mut(width).enumerate().try_for_each_init(
            Buffers::default,
            |buffers, (record, out)| {
                buffers.image.resize(pixels, 0.0);
                match inputs {
                    Inputs::Dense(values) => {
                        buffers.image.copy_from_slice(&values[record * pixels..][..pixels])
                    }
                    Inputs::Stored(store) => store
                        .read_values(record, &mut buffers.image)
                        .map_err(|error| unreadable("the records", &error))?,
                    // Images are never sequences.
                    _ => buffers.image.fill(0.0),
                }
                self.transform(buffers);
                to_halves(&mut buffers.other, out);
                Ok::<(), DataError>(())
            },
        )?;
        let store = Arc::new(HalfRecords { values, shape });
        data.with_values(shape, StoredRecords::all(store, "features".to_owned()))
    }

    /// The features of one image, channel by channel, in single precision.
    fn transform(&self, buffers: &mut Buffers) {
        self.scatter(buffers);
        let Buffers { map, other, .. } = buffers;
        if let Some(whitening) = self.whitening() {
            whitening.apply(map, other);
        }
        if self.options.mirror {
            mirror::fold(map, self.map.channels, self.map.width, other);
            std::mem::swap(map, other);
        }
        let channels = self.map.channels;
        let positions = map.len() / channels;
        other.resize(map.len(), 0.0);
        for (channel, plane) in other.chunks_exact_mut(positions).enumerate() {
            plane.iter_mut().zip(map[channel..].iter().step_by(channels)).for_each(|(to, from)| *to = *from);
        }
        self.options.normalise.apply(other, positions);
    }

    /// The scattering transform of all channels: `channels` numbers for each position.
    fn scatter(&self, buffers: &mut Buffers) {
        let Buffers { image, scratch, map, .. } = buffers;
        if self.options.is_opponent {
            colours::to_opponent(image);
        }
        let MapSize { channels, height, width } = self.map;
        map.resize(channels * height * width, 0.0);
        let pixels = height * width * SHRINK * SHRINK;
        for (colour, plane) in image.chunks_exact(pixels).enumerate() {
            self.scattering.apply(plane, &mut map[colour * PATHS..], channels, scratch);
        }
    }
}

impl fmt::Debug for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Features")
            .field("config", &self.config)
            .field("input", &self.input)
            .finish_non_exhaustive()
    }
}

/// Two transforms are equal if they have the same options for the same shape.
impl PartialEq for Features {
    fn eq(&self, other: &Self) -> bool {
        (self.config, self.input) == (other.config, other.input)
    }
}
