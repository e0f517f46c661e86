//! tmp
use crate::AnyError;
use crate::cli::StormArgs;
pub(crate) async fn storm(_args: StormArgs) -> Result<std::process::ExitCode, AnyError> { Err("not yet".into()) }
