//! Bodies that are in memory up to a point and stream from there on: [`Body`].

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The body of a request or response that went through the layer: what was read of it, then what streams on.
///
/// Wraps the body `B` of the service behind or in front; a request or response that the layer let through streams all
/// of it.
pub struct Body<B: HttpBody> {
    front: Option<Bytes>,
    rest: Option<Pin<Box<B>>>,
    end: Option<Result<HeaderMap, B::Error>>,
}

impl<B: HttpBody> Body<B> {
    /// A body that the layer does not look at.
    pub(crate) fn through(body: B) -> Self {
        Self { front: None, rest: Some(Box::pin(body)), end: None }
    }

    /// A body that is all there.
    pub(crate) fn whole(data: Bytes, trailers: Option<HeaderMap>) -> Self {
        Self { front: Some(data).filter(|data| !data.is_empty()), rest: None, end: trailers.map(Ok) }
    }
}

impl<B: HttpBody> Body<B> {
    /// Reads and throws away what is left, up to `limit` bytes.
    pub(crate) async fn discard(mut self, limit: usize) {
        let mut length = 0;
        while length <= limit
            && let Some(Ok(frame)) = self.frame().await
        {
            length += frame.data_ref().map_or(0, Bytes::len);
        }
    }
}

impl<B: HttpBody> From<Bytes> for Body<B> {
    fn from(data: Bytes) -> Self {
        Self::whole(data, None)
    }
}

impl<B: HttpBody> Default for Body<B> {
    fn default() -> Self {
        Self::whole(Bytes::new(), None)
    }
}

/// What has to stay where it is is in a box.
impl<B: HttpBody> Unpin for Body<B> {}

impl<B: HttpBody> HttpBody for Body<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if let Some(front) = self.front.take() {
            return Poll::Ready(Some(Ok(Frame::data(front))));
        }
        if let Some(rest) = &mut self.rest {
            let Some(frame) = ready!(rest.as_mut().poll_frame(context)) else {
                self.rest = None;
                return Poll::Ready(None);
            };
            return Poll::Ready(Some(frame.map(|frame| frame.map_data(to_bytes))));
        }
        Poll::Ready(self.end.take().map(|end| end.map(Frame::trailers)))
    }

    fn is_end_stream(&self) -> bool {
        self.front.is_none() && self.end.is_none() && self.rest.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let front = self.front.as_ref().map_or(0, |front| front.len() as u64);
        let rest = match (&self.rest, &self.end) {
            (Some(rest), _) => rest.size_hint(),
            // How much there would have been, nobody knows. And HTTP/1.1 has no trailers behind a length.
            (None, Some(_)) => SizeHint::default(),
            (None, None) => SizeHint::with_exact(0),
        };
        let mut hint = SizeHint::new();
        hint.set_lower(front.saturating_add(rest.lower()));
        if let Some(upper) = rest.upper().and_then(|upper| upper.checked_add(front)) {
            hint.set_upper(upper);
        }
        hint
    }
}

impl<B: HttpBody> fmt::Debug for Body<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let read = self.front.as_ref().map_or(0, Bytes::len);
        f.debug_struct("Body").field("read_bytes", &read).field("streams_on", &self.rest.is_some()).finish()
    }
}

/// What became of reading a body up to a limit.
pub(crate) enum Read<B: HttpBody> {
    /// It is all here.
    Whole { data: Bytes, trailers: Option<HeaderMap> },
    /// There is more than the limit.
    Over(Body<B>),
    /// It broke off.
    Broken(Body<B>),
}

/// Reads a body until it has more than `limit` bytes.
pub(crate) async fn read<B: HttpBody>(body: B, limit: usize) -> Read<B> {
    let mut body = Box::pin(body);
    let mut taken = Taken::Nothing;
    loop {
        match body.frame().await {
            None => return Read::Whole { data: taken.into_bytes(), trailers: None },
            Some(Err(error)) => {
                let front = Some(taken.into_bytes());
                return Read::Broken(Body { front, rest: None, end: Some(Err(error)) });
            }
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => taken.push(to_bytes(data)),
                Err(frame) => {
                    // Trailers are the last frame of a body.
                    let trailers = frame.into_trailers().ok();
                    return Read::Whole { data: taken.into_bytes(), trailers };
                }
            },
        }
        if taken.len() > limit {
            return Read::Over(Body { front: Some(taken.into_bytes()), rest: Some(body), end: None });
        }
    }
}

/// What was read: most bodies are one frame, which is kept as it is.
enum Taken {
    Nothing,
    One(Bytes),
    Several(BytesMut),
}

impl Taken {
    fn push(&mut self, data: Bytes) {
        *self = match std::mem::replace(self, Self::Nothing) {
            Self::Nothing => Self::One(data),
            Self::One(first) if first.is_empty() => Self::One(data),
            Self::One(first) => {
                let mut several = BytesMut::with_capacity(2 * (first.len() + data.len()));
                several.extend_from_slice(&first);
                several.extend_from_slice(&data);
                Self::Several(several)
            }
            Self::Several(mut several) => {
                several.extend_from_slice(&data);
                Self::Several(several)
            }
        };
    }

    fn len(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::One(one) => one.len(),
            Self::Several(several) => several.len(),
        }
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Self::Nothing => Bytes::new(),
            Self::One(one) => one,
            Self::Several(several) => several.freeze(),
        }
    }
}

fn to_bytes(mut data: impl Buf) -> Bytes {
    data.copy_to_bytes(data.remaining())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use http_body_util::{Full, StreamBody};

    type Step = Result<Frame<Bytes>, &'static str>;

    fn streamed(steps: Vec<Step>) -> impl HttpBody<Data = Bytes, Error = &'static str> {
        let mut steps = steps.into_iter();
        StreamBody::new(futures_util::stream::poll_fn(move |_| Poll::Ready(steps.next())))
    }

    fn data(bytes: &'static [u8]) -> Step {
        Ok(Frame::data(Bytes::from_static(bytes)))
    }

    #[tokio::test]
    async fn a_body_up_to_the_limit_is_read_with_its_trailers() {
        let trailers = HeaderMap::from_iter([(http::header::ETAG, HeaderValue::from_static("x"))]);
        let steps = vec![data(b"ab"), data(b""), data(b"c"), Ok(Frame::trailers(trailers.clone()))];
        let Read::Whole { data, trailers: read } = read(streamed(steps), 3).await else { panic!("all of it fits") };
        assert_eq!((&data[..], read.as_ref()), (&b"abc"[..], Some(&trailers)));
        let again = Body::<Full<Bytes>>::whole(data, read).collect().await.unwrap();
        assert_eq!(again.trailers(), Some(&trailers));
        assert_eq!(again.to_bytes(), "abc");
    }

    #[tokio::test]
    async fn a_longer_body_streams_on_from_where_it_was_read_to() {
        let Read::Over(body) = read(streamed(vec![data(b"ab"), data(b"cd"), data(b"ef")]), 3).await else {
            panic!("there is more")
        };
        assert_eq!(body.collect().await.unwrap().to_bytes(), "abcdef");
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_does_so_again() {
        let Read::Broken(mut body) = read(streamed(vec![data(b"ab"), Err("cut")]), 3).await else {
            panic!("it breaks off")
        };
        assert!(!body.is_end_stream() && body.size_hint().exact().is_none());
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "ab");
        assert_eq!(body.frame().await.unwrap().unwrap_err(), "cut");
        assert!(body.frame().await.is_none());
    }

    #[test]
    fn the_size_is_known_where_it_can_be() {
        let whole: Body<Full<Bytes>> = Bytes::from_static(b"abc").into();
        assert_eq!(whole.size_hint().exact(), Some(3));
        let through = Body::through(Full::<Bytes>::from("abcd"));
        assert_eq!(through.size_hint().exact(), Some(4));
        let trailed = Body::<Full<Bytes>>::whole(Bytes::from_static(b"abc"), Some(HeaderMap::new()));
        assert_eq!((trailed.size_hint().lower(), trailed.size_hint().exact()), (3, None));
        let empty = Body::<http_body_util::Empty<Bytes>>::default();
        assert!(empty.is_end_stream() && empty.size_hint().exact() == Some(0));
    }
}
