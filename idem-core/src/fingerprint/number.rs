//! The canonical text of a JSON number, exactly.
//!
//! A number is a row of decimal digits and a power of ten; no float is ever
//! made of it. The text follows ECMAScript's `Number::toString` (which RFC 8785
//! section 3.2.2.3 takes over), but with all significant digits of the input
//! where ECMAScript would first round to a double.

/// A number so large or so small that its power of ten does not fit an `i64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExponentOutOfRange;

/// Whole numbers of up to this many digits are written without an exponent.
const PLAIN_DIGITS: usize = 21;

/// Appends the canonical text of `text`, which must be a number of RFC 8259
/// section 6.
///
/// Two texts give the same output if and only if they stand for the same
/// number. The rule for the error looks at the number too, not at its spelling:
/// written as `d.ddd` times a power of ten, that power must fit an `i64`. Zero
/// has no such power: it is `0`, whatever its sign and exponent.
pub(super) fn write(text: &[u8], output: &mut Vec<u8>) -> Result<(), ExponentOutOfRange> {
    let (sign, unsigned) = match text {
        [b'-', rest @ ..] => (&text[..1], rest),
        _ => (&text[..0], text),
    };
    let stop = unsigned.iter().position(|byte| !byte.is_ascii_digit());
    // The grammar forbids leading zeros, so these digits are canonical as they stand.
    if stop.is_none() && unsigned.len() <= PLAIN_DIGITS && unsigned != b"0" {
        output.extend_from_slice(text);
        return Ok(());
    }

    let (integer, rest) = unsigned.split_at(stop.unwrap_or(unsigned.len()));
    let (fraction, exponent) = split_fraction(rest);
    let digits = Digits { integer, fraction };
    let Some((first, last)) = digits.significant() else {
        output.push(b'0');
        return Ok(());
    };

    // The number is 0.ddd (the significant digits) times ten to the power `point`.
    let point = place(integer.len()).saturating_sub(place(first)).saturating_add(exponent);
    let scientific = i64::try_from(point.saturating_sub(1)).map_err(|_| ExponentOutOfRange)?;

    output.extend_from_slice(sign);
    let count = last - first + 1;
    match usize::try_from(point) {
        Ok(point @ 1..=PLAIN_DIGITS) if count <= point => {
            digits.copy(first, last + 1, output);
            output.extend(std::iter::repeat_n(b'0', point - count));
        }
        Ok(point @ 1..=PLAIN_DIGITS) => {
            digits.copy(first, first + point, output);
            output.push(b'.');
            digits.copy(first + point, last + 1, output);
        }
        _ if (-5..=0).contains(&point) => {
            output.extend_from_slice(b"0.");
            output.extend((point..0).map(|_| b'0'));
            digits.copy(first, last + 1, output);
        }
        _ => {
            digits.copy(first, first + 1, output);
            if count > 1 {
                output.push(b'.');
                digits.copy(first + 1, last + 1, output);
            }
            output.extend_from_slice(if scientific < 0 { b"e-" } else { b"e+" });
            output.extend_from_slice(scientific.unsigned_abs().to_string().as_bytes());
        }
    }
    Ok(())
}

/// The digits before and after the decimal point, addressed as one row.
struct Digits<'a> {
    integer: &'a [u8],
    fraction: &'a [u8],
}

impl Digits<'_> {
    /// The first and the last digit that is not zero.
    fn significant(&self) -> Option<(usize, usize)> {
        let is_significant = |digit: &u8| *digit != b'0';
        let integer = self.integer;
        let fraction = self.fraction;
        let first = integer.iter().position(is_significant).or_else(|| {
            let index = fraction.iter().position(is_significant)?;
            Some(integer.len() + index)
        })?;
        let last = match fraction.iter().rposition(is_significant) {
            Some(index) => integer.len() + index,
            None => integer.iter().rposition(is_significant)?,
        };
        Some((first, last))
    }

    fn copy(&self, from: usize, to: usize, output: &mut Vec<u8>) {
        let split = self.integer.len();
        output.extend_from_slice(&self.integer[from.min(split)..to.min(split)]);
        output.extend_from_slice(&self.fraction[from.saturating_sub(split)..to.saturating_sub(split)]);
    }
}

/// Splits what follows the integer digits into fraction digits and exponent.
///
/// The exponent saturates at the ends of `i128`. That changes no answer: the
/// number of digits is less than 2^64, so a saturated exponent is out of range
/// wherever the decimal point stands.
fn split_fraction(rest: &[u8]) -> (&[u8], i128) {
    let (fraction, exponent) = match rest.iter().position(|byte| matches!(byte, b'e' | b'E')) {
        Some(index) => (&rest[..index], &rest[index + 1..]),
        None => (rest, &rest[..0]),
    };
    let fraction = fraction.strip_prefix(b".").unwrap_or(fraction);
    let (negative, exponent) = match exponent {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let magnitude =
        exponent.iter().fold(0i128, |value, digit| value.saturating_mul(10).saturating_add(i128::from(digit - b'0')));
    (fraction, if negative { -magnitude } else { magnitude })
}

fn place(index: usize) -> i128 {
    i128::try_from(index).unwrap_or(i128::MAX)
}

#[cfg(test)]
mod tests {
    use super::{ExponentOutOfRange, write};
    use proptest::prelude::*;

    fn canonical(text: &str) -> Result<String, ExponentOutOfRange> {
        let mut output = Vec::new();
        write(text.as_bytes(), &mut output)?;
        Ok(String::from_utf8(output).unwrap())
    }

    #[test]
    fn known_numbers() {
        let table = [
            ("0", "0"),
            ("-0", "0"),
            ("0.000", "0"),
            ("-0e5", "0"),
            ("0e99999", "0"),
            ("0E-99999999999999999999999999999999999999999999", "0"),
            ("1", "1"),
            ("1.0", "1"),
            ("1e0", "1"),
            ("10e-1", "1"),
            ("0.1e1", "1"),
            ("-1.50", "-1.5"),
            ("100", "100"),
            ("1e2", "100"),
            ("1E+002", "100"),
            ("1e-0", "1"),
            ("9007199254740992", "9007199254740992"),
            ("9007199254740993", "9007199254740993"),
            ("0.1", "0.1"),
            ("0.10000000000000000000000000000001", "0.10000000000000000000000000000001"),
            ("0.000001", "0.000001"),
            ("0.0000012", "0.0000012"),
            ("0.0000001", "1e-7"),
            ("0.00000012", "1.2e-7"),
            ("1e20", "100000000000000000000"),
            ("1e21", "1e+21"),
            ("999999999999999999999", "999999999999999999999"),
            ("1000000000000000000000", "1e+21"),
            ("1234567890123456789012", "1.234567890123456789012e+21"),
            ("123456789012345678901.25", "123456789012345678901.25"),
            ("12345678901234567890e2", "1.234567890123456789e+21"),
            ("12.5e1", "125"),
            ("12.5e3", "12500"),
            ("125e-2", "1.25"),
            ("125e-3", "0.125"),
            ("100.001", "100.001"),
            ("10.0e-1", "1"),
            ("1e400", "1e+400"),
            ("1e-400", "1e-400"),
            ("1e9223372036854775807", "1e+9223372036854775807"),
            ("10e9223372036854775806", "1e+9223372036854775807"),
            ("0.1e9223372036854775808", "1e+9223372036854775807"),
            ("1e-9223372036854775808", "1e-9223372036854775808"),
        ];
        for (text, expected) in table {
            assert_eq!(canonical(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn exponents_beyond_i64_have_no_canonical_text() {
        for text in [
            "1e9223372036854775808",
            "10e9223372036854775807",
            "1e-9223372036854775809",
            "0.1e-9223372036854775808",
            "1e999999999999999999999999999999999999999999999999",
            "-1e-999999999999999999999999999999999999999999999999",
        ] {
            assert_eq!(canonical(text), Err(ExponentOutOfRange), "{text}");
        }
    }

    #[test]
    fn a_million_digits_are_linear() {
        let text = format!("0.{}1{}e5", "0".repeat(500_000), "0".repeat(500_000));
        assert_eq!(canonical(&text).as_deref(), Ok("1e-499996"));
        let text = "7".repeat(1_000_000);
        assert_eq!(canonical(&text).unwrap().len(), 1_000_000 + ".e+999999".len());
    }

    prop_compose! {
        fn digits()(text in "[1-9]([0-9]{0,30}[1-9])?") -> String { text }
    }

    proptest! {
        /// The same digits with the point elsewhere, the exponent making up for it.
        #[test]
        fn spelling_does_not_matter(
            digits in digits(), exponent in -40i64..40, split in 0usize..32, zeros in 0usize..5,
        ) {
            let split = split.min(digits.len());
            let plain = format!("{digits}e{exponent}");
            let (left, right) = digits.split_at(split);
            let left = if left.is_empty() { "0" } else { left };
            let shifted = exponent + i64::try_from(right.len()).unwrap();
            let pointed = format!("{left}.{right}{}0E{shifted:+}", "0".repeat(zeros));
            prop_assert_eq!(canonical(&plain), canonical(&pointed));
        }

        #[test]
        fn different_numbers_stay_different(
            a in digits(), b in digits(), x in -30i64..30, y in -30i64..30,
        ) {
            // Digits without trailing zeros and an exponent are a unique name of a number.
            let same = a == b && x == y;
            let left = canonical(&format!("{a}e{x}"));
            prop_assert_eq!(left == canonical(&format!("{b}e{y}")), same);
        }

        #[test]
        fn canonical_text_is_its_own_canonical_text(digits in digits(), exponent in -400i64..400) {
            let once = canonical(&format!("-{digits}e{exponent}")).unwrap();
            prop_assert_eq!(canonical(&once).unwrap(), once);
        }

        /// Where a double's shortest text is the input, the result is ECMAScript's.
        #[test]
        fn agrees_with_doubles(number in any::<f64>().prop_filter("finite", |n| n.is_finite())) {
            let text = serde_json::to_string(&number).unwrap();
            let expected = serde_json_canonicalizer::to_string(&number).unwrap();
            prop_assert_eq!(canonical(&text).unwrap(), expected);
        }
    }
}
