//! Random views of images: augmentation within a record.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::error::NetworkError;
use crate::shape::Shape;
use crate::units::Member;

/// Random views of each record, whose gradients are averaged before the record is clipped ("augmentation multiplicity", De et al. 2022).
///
/// A view is a function of the key of the pass, the record's place in the data set, and the number of the view. It does not depend
/// on other records, so a slot still adds one vector of bounded norm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Views {
    /// How many views of each record are averaged.
    pub copies: usize,
    /// Whether a view is mirrored, left to right, with probability one half.
    pub flip: bool,
    /// A view is shifted by up to this many pixels in each direction. Pixels from outside the image are 0.
    pub crop: usize,
}

/// The largest number of views of a record.
const MOST_COPIES: usize = 1024;

/// The position of views in a record's stream of random numbers, behind the masks of all [layers](crate::layers::Dropout).
const POSITION: u128 = ((1 << 28) - 1) << 40;

impl Views {
    /// Checks that the values are permitted for records of this shape.
    pub(crate) fn check(self, shape: Shape) -> Result<(), NetworkError> {
        let refuse = |problem: String| Err(NetworkError::Records(problem));
        let Shape::Image { height, width, .. } = shape else {
            return refuse(format!("views need images, but the network reads records of {shape}"));
        };
        if !(1..=MOST_COPIES).contains(&self.copies) {
            return refuse(format!("the number of views must be 1 to {MOST_COPIES}, got {}", self.copies));
        }
        let most = height.min(width) - 1;
        match self.crop > most {
            true => {
                refuse(format!("the crop of {height}x{width} images must be 0 to {most}, got {}", self.crop))
            }
            false => Ok(()),
        }
    }

    /// The view of an image with these values, channel by channel.
    pub(crate) fn apply(
        self,
        key: [u8; 32],
        member: Member,
        shape: Shape,
        values: &[f32],
        view: &mut Vec<f32>,
    ) {
        view.clear();
        let Shape::Image { height, width, .. } = shape else { return view.extend(values) };
        let mut stream = ChaCha8Rng::from_seed(key);
        stream.set_stream(member.stream());
        stream.set_word_pos(POSITION);
        let mirrored = self.flip && stream.next_u32() % 2 == 1;
        // Multiplication maps 32 bits to the shifts, with equal probabilities up to 2^-31.
        let mut shift = || ((u64::from(stream.next_u32()) * (2 * self.crop as u64 + 1)) >> 32) as usize;
        let (down, right) = (shift(), shift());
        view.resize(values.len(), 0.0);
        // Columns of the view whose pixels come from inside the image.
        let inside = self.crop.saturating_sub(right)..width.min(width + self.crop - right);
        let planes = values.chunks_exact(height * width).zip(view.chunks_exact_mut(height * width));
        for (values, view) in planes {
            for (y, row) in view.chunks_exact_mut(width).enumerate() {
                if let Some(from) = (y + down).checked_sub(self.crop).filter(|&from| from < height) {
                    let column = from * width + inside.start + right - self.crop;
                    row[inside.clone()].copy_from_slice(&values[column..column + inside.len()]);
                }
                if mirrored {
                    row.reverse();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::vector::tests::numbers;
    use crate::layers::{Conv2d, Flatten, Linear};
    use crate::{Combination, Description, Engine, Inputs, Loss, Network, Pass, Records, Targets, Units};

    const SHAPE: Shape = Shape::Image { channels: 2, height: 3, width: 4 };

    fn view(views: Views, key: u8, record: usize, copy: usize) -> Vec<f32> {
        let values: Vec<f32> = (1..=24).map(|value| value as f32).collect();
        let mut view = Vec::new();
        views.apply([key; 32], Member { record, copy }, SHAPE, &values, &mut view);
        view
    }

    /// Every view is one of the shifted and mirrored images, and all of them occur.
    #[test]
    fn all_shifts_and_both_sides_occur_and_nothing_else() {
        let views = Views { copies: 1, flip: true, crop: 1 };
        let mut expected = Vec::new();
        for (mirrored, down, right) in [false, true]
            .into_iter()
            .flat_map(|m| (-1..=1).flat_map(move |y| (-1..=1).map(move |x| (m, y, x))))
        {
            let pixel = |channel: i32, y: i32, x: i32| {
                let (y, x) = (y + down, if mirrored { 3 - x } else { x } + right);
                let inside = (0..3).contains(&y) && (0..4).contains(&x);
                if inside { (1 + channel * 12 + y * 4 + x) as f32 } else { 0.0 }
            };
            let places = (0..24).map(|place| pixel(place / 12, place / 4 % 3, place % 4));
            expected.push(places.collect::<Vec<f32>>());
        }
        let mut counts = [0; 18];
        for record in 0..1800 {
            let view = view(views, 1, record, 0);
            let kind = expected.iter().position(|expected| *expected == view);
            counts[kind.unwrap_or_else(|| panic!("{view:?}"))] += 1;
        }
        // 100 each, with a standard deviation of 10; the key is fixed.
        assert!(counts.iter().all(|count| (50..150).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_view_depends_on_key_record_and_copy_alone() {
        let views = Views { copies: 4, flip: true, crop: 2 };
        let some =
            |key: u8, copy: usize| (0..20).map(|record| view(views, key, record, copy)).collect::<Vec<_>>();
        assert_eq!(some(1, 0), some(1, 0));
        assert_ne!(some(1, 0), some(2, 0));
        assert_ne!(some(1, 0), some(1, 1));
    }

    /// Three records with four views each, against units of the twelve views.
    #[test]
    fn a_record_adds_the_mean_of_its_views() {
        let description =
            Description::new(SHAPE).then(Conv2d::new(3, 2, 1, 0)).then(Flatten).then(Linear::new(2));
        let views = Views { copies: 4, flip: true, crop: 1 };
        let (values, classes) = (numbers(3 * 24, 1), [0, 1, 1]);
        let mut shown = Vec::new();
        let mut buffer = Vec::new();
        for (record, copy) in (0..3).flat_map(|record| (0..4).map(move |copy| (record, copy))) {
            views.apply([5; 32], Member { record, copy }, SHAPE, &values[record * 24..][..24], &mut buffer);
            shown.extend_from_slice(&buffer);
        }
        let units = Units::new((0..12).collect(), vec![0, 4, 8, 12]).expect("units of four");
        let rule = |norms: &[f64], weights: &mut [f32]| weights.fill(0.3 / norms[0] as f32);
        for most in [4, 300] {
            let network = Network::new(&description).expect("a network");
            let engine = Engine::with_workers(network, Loss::cross_entropy(), 1).expect("an engine");
            let mut engine = engine.for_slots_of(most).expect("slots of four");
            let params = engine.network().init(1);
            let mut run = |records: Records<'_>| {
                let mut sums = [vec![0.0; params.values().len()]];
                let pass = Pass::new(&params, &records, &[0, 1, 2]).with_dropout([5; 32]).weighed_by(&rule);
                (engine.pass(&pass, &mut sums).expect("a pass"), sums)
            };
            let unit_targets: Vec<u32> = classes.iter().flat_map(|class| [*class; 4]).collect();
            let network = Network::new(&description).expect("a network");
            let check = Engine::with_workers(network, Loss::cross_entropy(), 1).expect("an engine");
            let plain = check.records(Inputs::Dense(&values), Targets::Classes(&classes)).expect("records");
            let all = check.records(Inputs::Dense(&shown), Targets::Classes(&unit_targets)).expect("records");
            let expected = run(all.in_units(&units, Combination::Mean).expect("units"));
            assert_eq!(run(plain.with_views(views).expect("views")), expected);
            assert_ne!(run(plain), expected);
            // One view that changes nothing.
            let same = Views { copies: 1, flip: false, crop: 0 };
            assert_eq!(run(plain.with_views(same).expect("views")), run(plain));
        }
    }

    #[test]
    fn what_is_not_permitted_is_refused() {
        let problem = |views: Views, shape: Shape| views.check(shape).err().map(|error| error.to_string());
        let plain = Views { copies: 1, flip: false, crop: 0 };
        assert_eq!(problem(plain, SHAPE), None);
        assert_eq!(problem(Views { crop: 2, copies: 1024, ..plain }, SHAPE), None);
        assert_eq!(
            problem(Views { crop: 3, ..plain }, SHAPE).as_deref(),
            Some("the crop of 3x4 images must be 0 to 2, got 3")
        );
        for copies in [0, 1025] {
            let message = format!("the number of views must be 1 to 1024, got {copies}");
            assert_eq!(problem(Views { copies, ..plain }, SHAPE), Some(message));
        }
        assert_eq!(
            problem(plain, Shape::Features(9)).as_deref(),
            Some("views need images, but the network reads records of 9")
        );
    }
}
