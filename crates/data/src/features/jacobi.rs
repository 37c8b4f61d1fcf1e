//! Powers of symmetric matrices.

/// The power of a symmetric matrix without negative eigenvalues, row by row: `V diag((lambda + ridge mean(lambda))^power) V^T`.
///
/// The eigenvalues come from cyclic Jacobi rotations (Golub and Van Loan, Matrix Computations, section 8.5). Only basic arithmetic, square roots
/// and `libm` are used, so the result does not depend on the platform.
pub(super) fn power(matrix: &[f64], size: usize, power: f64, ridge: f64) -> Vec<f64> {
    let (values, vectors) = eigen(matrix.to_vec(), size);
    let mean = values.iter().sum::<f64>() / size as f64;
    // The mean eigenvalue of a matrix of zeros is 0, so it cannot be a scale.
    let mean = if mean > 0.0 { mean } else { 1.0 };
    let scaled: Vec<f64> =
        values.iter().map(|value| libm::pow(value.max(0.0) / mean + ridge, power)).collect();
    let mut result = vec![0.0; size * size];
    for (vector, scale) in vectors.chunks_exact(size).zip(scaled) {
        for (row, left) in result.chunks_exact_mut(size).zip(vector) {
            row.iter_mut().zip(vector).for_each(|(to, right)| *to += scale * left * right);
        }
    }
    result
}

/// The eigenvalues of a symmetric matrix, and its eigenvectors one after another.
fn eigen(mut a: Vec<f64>, n: usize) -> (Vec<f64>, Vec<f64>) {
    let mut v = vec![0.0; n * n];
    (0..n).for_each(|i| v[i * n + i] = 1.0);
    for _ in 0..50 {
        let (mut off, mut on) = (0.0, 0.0);
        for i in 0..n {
            on += a[i * n + i] * a[i * n + i];
            off += a[i * n..i * n + i].iter().map(|x| x * x).sum::<f64>();
        }
        if !(off > 1e-26 * on) {
            break;
        }
        for p in 0..n {
            for q in p + 1..n {
                rotate(&mut a, &mut v, n, p, q);
            }
        }
    }
    ((0..n).map(|i| a[i * n + i]).collect(), v)
}

/// Makes the entries `(p, q)` and `(q, p)` zero.
fn rotate(a: &mut [f64], v: &mut [f64], n: usize, p: usize, q: usize) {
    let apq = a[p * n + q];
    if apq == 0.0 {
        return;
    }
    let tau = (a[q * n + q] - a[p * n + p]) / (2.0 * apq);
    let t = tau.signum() / (tau.abs() + (1.0 + tau * tau).sqrt());
    let c = 1.0 / (1.0 + t * t).sqrt();
    let s = t * c;
    rotate_rows(a, n, p, q, c, s);
    for row in a.chunks_exact_mut(n) {
        (row[p], row[q]) = (c * row[p] - s * row[q], s * row[p] + c * row[q]);
    }
    rotate_rows(v, n, p, q, c, s);
}

fn rotate_rows(a: &mut [f64], n: usize, p: usize, q: usize, c: f64, s: f64) {
    let (above, below) = a.split_at_mut(q * n);
    for (x, y) in above[p * n..][..n].iter_mut().zip(&mut below[..n]) {
        (*x, *y) = (c * *x - s * *y, s * *x + c * *y);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn product(a: &[f64], b: &[f64], n: usize) -> Vec<f64> {
        (0..n * n).map(|at| (0..n).map(|k| a[at / n * n + k] * b[k * n + at % n]).sum()).collect()
    }

    #[test]
    fn powers_of_a_matrix_multiply() {
        let n = 12;
        let factor: Vec<f64> = (0..n * n).map(|i| f64::from((i as u32 * 31 + 7) % 23) / 11.0 - 1.0).collect();
        let transposed: Vec<f64> = (0..n * n).map(|at| factor[at % n * n + at / n]).collect();
        let matrix = product(&factor, &transposed, n);
        let mean = (0..n).map(|i| matrix[i * n + i]).sum::<f64>() / n as f64;
        for (ridge, tolerance) in [(0.001, 1e-10), (0.1, 1e-12)] {
            let root = power(&matrix, n, 0.5, ridge);
            let inverse = power(&matrix, n, -1.0, ridge);
            let square = product(&root, &root, n);
            let one = product(&square, &inverse, n);
            for at in 0..n * n {
                let unit = f64::from(u8::from(at / n == at % n));
                assert!((square[at] - matrix[at] / mean - ridge * unit).abs() < 1e-12, "{at}");
                assert!((one[at] - unit).abs() < tolerance, "{at}: {}", one[at]);
            }
        }
        assert_eq!(power(&[0.0; 4], 2, 0.5, 0.0), [0.0; 4]);
    }
}
