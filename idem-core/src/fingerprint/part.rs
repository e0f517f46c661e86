//! The parts of a request that a fingerprint covers.

use std::fmt;

/// A part of a request that a fingerprint covers.
///
/// A mismatch names the part that differs, so that a caller can be told "the
/// body differs" without being shown either body. Each part has a stable code,
/// which is what is stored.
///
/// ```
/// use idem_core::fingerprint::Part;
///
/// assert_eq!(Part::Body.code(), 5);
/// assert_eq!(Part::from_code(5), Some(Part::Body));
/// assert_eq!(Part::from_code(200), None);
/// assert_eq!(Part::Body.to_string(), "body");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Part {
    /// The method and route, such as `POST /v1/charges`. Code 1.
    Operation,
    /// The values that the route took out of the path. Code 2.
    Path,
    /// The chosen query parameters, in the order given. Code 3.
    Query,
    /// The chosen headers. Code 4.
    Headers,
    /// The body. Code 5.
    Body,
}

impl Part {
    /// Returns the code that stands for this part in a stored fingerprint.
    ///
    /// Codes are never reused and 0 is never a code.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Operation => 1,
            Self::Path => 2,
            Self::Query => 3,
            Self::Headers => 4,
            Self::Body => 5,
        }
    }

    /// Returns the part that a stored code stands for, or `None` for a code
    /// that this version does not know.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Operation),
            2 => Some(Self::Path),
            3 => Some(Self::Query),
            4 => Some(Self::Headers),
            5 => Some(Self::Body),
            _ => None,
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Operation => "operation",
            Self::Path => "path",
            Self::Query => "query",
            Self::Headers => "headers",
            Self::Body => "body",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Part;

    #[test]
    fn codes_and_names_are_for_ever() {
        let table = [
            (Part::Operation, 1, "operation"),
            (Part::Path, 2, "path"),
            (Part::Query, 3, "query"),
            (Part::Headers, 4, "headers"),
            (Part::Body, 5, "body"),
        ];
        for (part, code, name) in table {
            assert_eq!(part.code(), code);
            assert_eq!(Part::from_code(code), Some(part));
            assert_eq!(part.to_string(), name);
        }
        let known = (0..=u8::MAX).filter(|code| Part::from_code(*code).is_some());
        assert_eq!(known.count(), table.len());
    }
}
