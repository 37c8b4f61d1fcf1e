//! Synthetic images whose statistics are like those of photographs. No real image is used.

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Opaque shapes of random sizes, colours and directions that cover each other, with a weak texture: a dead-leaves image (Lee, Mumford and
/// Huang 2001). Radii follow a power law, so the statistics hardly depend on scale, as in photographs.
///
/// The image depends only on its number and its shape. Only integers, basic arithmetic, square roots and `libm` are used, so it is the same
/// on every platform. Values are multiples of 1/255 in `[0, 1]`, channel by channel.
pub(super) fn dead_leaves(number: u64, channels: usize, height: usize, width: usize) -> Vec<f32> {
    let mut random = Random::new(number);
    let base: Vec<f32> = (0..channels).map(|_| random.uniform()).collect();
    let spread = 0.15 + 0.35 * random.uniform();
    let pixels = height * width;
    let mut image: Vec<f32> = base.iter().flat_map(|&colour| std::iter::repeat_n(colour, pixels)).collect();
    for leaf in 0..LEAVES {
        let leaf = Leaf::draw(&mut random, leaf, height, width);
        leaf.cover(&mut image, &base, spread, &mut random, width);
    }
    let strength = 0.1 * random.uniform();
    let texture = texture(&mut random, height, width);
    for plane in image.chunks_exact_mut(pixels) {
        for (value, texture) in plane.iter_mut().zip(&texture) {
            *value = libm::floorf((*value + strength * texture).clamp(0.0, 1.0) * 255.0) / 255.0;
        }
    }
    image
}

const LEAVES: usize = 50;

/// An ellipse or a rectangle.
struct Leaf {
    row: f32,
    column: f32,
    sin: f32,
    cos: f32,
    radius: f32,
    aspect: f32,
    is_rectangle: bool,
    /// Half the size of the image.
    half: f32,
}

impl Leaf {
    fn draw(random: &mut Random, leaf: usize, height: usize, width: usize) -> Leaf {
        let (tall, wide) = (height as f32, width as f32);
        let size = tall.min(wide);
        let radius = (2.0 / libm::powf(random.uniform().max(0.005), 0.7)).min(0.75 * size);
        // The first leaves are larger and form the background.
        let radius = if leaf <= LEAVES / 3 { 2.0 * radius } else { radius };
        let column = random.uniform() * (wide + size / 4.0) - size / 8.0;
        let row = random.uniform() * (tall + size / 4.0) - size / 8.0;
        let (sin, cos) = libm::sincosf(random.uniform() * std::f32::consts::PI);
        let aspect = 0.3 + 0.7 * random.uniform();
        let is_rectangle = random.uniform() < 0.5;
        Leaf { row, column, sin, cos, radius, aspect, is_rectangle, half: size / 2.0 }
    }

    /// Draws the leaf, in one colour with a weak gradient, with soft borders.
    fn cover(&self, image: &mut [f32], base: &[f32], spread: f32, random: &mut Random, width: usize) {
        let brightness = random.normal();
        let colours: Vec<f32> =
            base.iter().map(|base| base + spread * (brightness + 0.4 * random.normal())).collect();
        let slope = 0.2 * spread * random.normal() / self.half;
        let pixels = image.len() / base.len();
        for pixel in 0..pixels {
            let (down, right) = ((pixel / width) as f32 - self.row, (pixel % width) as f32 - self.column);
            let u = self.cos * right + self.sin * down;
            let v = (self.cos * down - self.sin * right) / self.aspect;
            let distance = if self.is_rectangle { u.abs().max(v.abs()) } else { (u * u + v * v).sqrt() };
            let inside = 1.5 * (self.radius - distance);
            if inside < -10.0 {
                continue;
            }
            let cover = 1.0 / (1.0 + libm::expf(-inside));
            for (plane, colour) in image.chunks_exact_mut(pixels).zip(&colours) {
                plane[pixel] += (colour + slope * u - plane[pixel]) * cover;
            }
        }
    }
}

/// Noise with about the same strength in every octave, of mean 0 and variance 1: interpolated random grids, each twice as fine.
fn texture(random: &mut Random, height: usize, width: usize) -> Vec<f32> {
    let mut texture = vec![0.0; height * width];
    let mut step = 1;
    while step <= height.min(width) {
        let across = width / step + 2;
        let grid: Vec<f32> = (0..(height / step + 2) * across).map(|_| random.normal()).collect();
        let strength = libm::powf(step as f32, 0.2);
        for (pixel, value) in texture.iter_mut().enumerate() {
            let (row, column) = (pixel / width, pixel % width);
            let at = row / step * across + column / step;
            let (down, right) = ((row % step) as f32 / step as f32, (column % step) as f32 / step as f32);
            let above = grid[at] * (1.0 - right) + grid[at + 1] * right;
            let below = grid[at + across] * (1.0 - right) + grid[at + across + 1] * right;
            *value += strength * (above * (1.0 - down) + below * down);
        }
        step *= 2;
    }
    let count = texture.len() as f32;
    let mean = texture.iter().sum::<f32>() / count;
    let variance = texture.iter().map(|value| (value - mean) * (value - mean)).sum::<f32>() / count;
    let scale = 1.0 / variance.max(1e-6).sqrt();
    texture.iter_mut().for_each(|value| *value = (*value - mean) * scale);
    texture
}

/// The random numbers of one image: ChaCha20, keyed by a public constant and the number of the image.
struct Random(ChaCha20Rng);

impl Random {
    fn new(number: u64) -> Random {
        let mut key = *b"sordino dead leaves 1 ..........";
        key[24..].copy_from_slice(&number.to_le_bytes());
        Random(ChaCha20Rng::from_seed(key))
    }

    /// Uniform in `[0, 1)`, a multiple of `2^-24`.
    fn uniform(&mut self) -> f32 {
        (self.0.next_u32() >> 8) as f32 / 16_777_216.0
    }

    /// Normal with mean 0 and variance 1 (Box and Muller 1958).
    fn normal(&mut self) -> f32 {
        let radius = libm::sqrtf(-2.0 * libm::logf(1.0 - self.uniform()));
        radius * libm::cosf(2.0 * std::f32::consts::PI * self.uniform())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_depends_on_its_number_and_its_shape_only() {
        let image = dead_leaves(3, 3, 16, 20);
        assert_eq!(image, dead_leaves(3, 3, 16, 20));
        assert_ne!(image, dead_leaves(4, 3, 16, 20));
        assert_eq!(image.len(), 3 * 16 * 20);
        let is_byte = |value: &f32| (0.0..=1.0).contains(value) && (value * 255.0).fract().abs() < 1e-3;
        assert!(image.iter().all(|value| is_byte(value) || is_byte(&(value + 1e-6))));
    }
}
