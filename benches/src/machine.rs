//! What a reader has to know of the machine that was measured: [`facts`].

use std::fs::read_to_string;

/// Its processor, memory and kernel, a line each.
#[must_use]
pub fn facts() -> Vec<String> {
    let read = |file| read_to_string(file).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let processor = field(&read("/proc/cpuinfo"), "model name");
    let memory = field(&read("/proc/meminfo"), "MemTotal");
    let kernel = read("/proc/sys/kernel/osrelease");
    vec![format!("{cores} cores, {processor}, {memory} of memory"), format!("Linux {}", kernel.trim())]
}

fn field(text: &str, name: &str) -> String {
    let value = text.lines().find_map(|line| Some(line.strip_prefix(name)?.split_once(':')?.1.trim().to_owned()));
    value.unwrap_or_else(|| "unknown".to_owned())
}
