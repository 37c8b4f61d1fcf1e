//! Least squares with few coefficients and many observations.

/// The sums of a regression `y = sum_i k_i x_i + noise`.
#[derive(Debug, Clone)]
pub(crate) struct Regression {
    /// `sum x x^T`, row by row.
    moments: Vec<f64>,
    /// `sum x y`.
    products: Vec<f64>,
}

/// Estimated coefficients.
#[derive(Debug, Clone)]
pub(crate) struct Coefficients {
    /// The estimates.
    pub(crate) values: Vec<f64>,
    /// Their covariances for noise of variance 1, row by row.
    covariances: Vec<Vec<f64>>,
}

impl Regression {
    pub(crate) fn new(coefficients: usize) -> Self {
        Self { moments: vec![0.0; coefficients * coefficients], products: vec![0.0; coefficients] }
    }

    pub(crate) fn observe(&mut self, x: &[f64], y: f64) {
        let size = self.products.len();
        for (row, &xi) in x.iter().enumerate() {
            self.products[row] += xi * y;
            for (moment, &xj) in self.moments[row * size..(row + 1) * size].iter_mut().zip(x) {
                *moment += xi * xj;
            }
        }
    }

    /// The coefficients; none if the observations do not determine them.
    pub(crate) fn solve(&self) -> Option<Coefficients> {
        let size = self.products.len();
        // Gauss-Jordan elimination of [moments | identity], with pivots on the diagonal: the matrix is positive definite.
        let mut rows: Vec<Vec<f64>> = (0..size)
            .map(|row| {
                let mut whole = self.moments[row * size..(row + 1) * size].to_vec();
                whole.extend((0..size).map(|column| f64::from(u8::from(column == row))));
                whole
            })
            .collect();
        for pivot in 0..size {
            let value = rows[pivot][pivot];
            if !(value > 1e-9 * self.moments[pivot * size + pivot]) {
                return None;
            }
            rows[pivot].iter_mut().for_each(|entry| *entry /= value);
            let source = rows[pivot].clone();
            for (_, target) in rows.iter_mut().enumerate().filter(|(row, _)| *row != pivot) {
                let factor = target[pivot];
                target.iter_mut().zip(&source).for_each(|(entry, source)| *entry -= factor * source);
            }
        }
        let covariances: Vec<Vec<f64>> = rows.into_iter().map(|row| row[size..].to_vec()).collect();
        let values = covariances.iter().map(|row| dot(row, &self.products)).collect();
        Some(Coefficients { values, covariances })
    }
}

impl Coefficients {
    /// The standard deviation of one estimate.
    pub(crate) fn deviation(&self, index: usize) -> f64 {
        self.covariances[index][index].sqrt()
    }

    /// An estimate of the squared length of the vector `k` of the first `count` coefficients, and its standard deviation.
    ///
    /// For an estimate `e` with covariances `S`, `|e|^2 - tr S` has the mean `|k|^2` and the variance `4 k'S k + 2 tr S^2`.
    pub(crate) fn squared_length(&self, count: usize) -> (f64, f64) {
        let values = &self.values[..count];
        let rows = || self.covariances[..count].iter().map(|row| &row[..count]);
        let trace: f64 = (0..count).map(|index| self.covariances[index][index]).sum();
        let along: f64 = rows().zip(values).map(|(row, value)| value * dot(row, values)).sum();
        let squares: f64 = rows().map(|row| dot(row, row)).sum();
        (dot(values, values) - trace, (4.0 * along + 2.0 * squares).sqrt())
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_observations_give_exact_coefficients() {
        let mut regression = Regression::new(3);
        for i in 0..20 {
            let t = f64::from(i);
            let x = [t, (t * 0.7).sin() + 2.0, t * t % 7.0];
            regression.observe(&x, 2.0 * x[0] - x[1] + 0.5 * x[2]);
        }
        let solved = regression.solve().unwrap();
        for (value, expected) in solved.values.iter().zip([2.0, -1.0, 0.5]) {
            assert!((value - expected).abs() < 1e-9);
        }
    }

    #[test]
    fn equal_columns_are_not_determined() {
        let mut regression = Regression::new(2);
        (0..9).for_each(|i| regression.observe(&[f64::from(i); 2], 1.0));
        assert!(regression.solve().is_none());
    }
}
