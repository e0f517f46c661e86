//! The middle of several figures: [`median`].

/// The middle one, or the mean of both; not a number if there is none.
///
/// # Examples
///
/// ```
/// use idem_benches::median::median;
///
/// assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
/// assert_eq!(median([4.0, 1.0, 3.0, 2.0]), 2.5);
/// assert!(median([]).is_nan());
/// ```
pub fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.into_iter().collect();
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    match figures.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => figures[middle],
        _ => f64::midpoint(figures[middle - 1], figures[middle]),
    }
}
