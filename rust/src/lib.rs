//! C interface of the bridge (src/codec/prompt/internal/artery_bridge.h describes it). Every entry
//! catches panics, and templates run on a stack of their own: a template can nest values as deep as its
//! fuel lasts, and freeing them recurses.

mod normalise;
mod pycompat;
mod python;
mod rewrite;
mod sentinel;
mod strftime;
mod template;

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Once;
use template::{Failure, Input, Output, Template};

/// Address space, not memory: only what is touched is ever backed.
const STACK_BYTES: usize = 1 << 30;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ArteryBytes {
    data: *const u8,
    size: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ArteryRange {
    begin: usize,
    end: usize,
}

#[repr(C)]
pub struct ArteryTemplateInput {
    messages: *const ArteryBytes,
    message_count: usize,
    tools: ArteryBytes,
    documents: ArteryBytes,
    kwargs: ArteryBytes,
    now: ArteryBytes,
    add_generation_prompt: bool,
    continue_final_message: bool,
    as_sent: bool,
}

#[repr(C)]
pub struct ArteryTemplateOutput {
    status: u32,
    line: u32,
    text: ArteryBytes,
    literal: *const ArteryRange,
    literal_count: usize,
}

const OK: u32 = 0;
const RAISED: u32 = 1;
const FAILED: u32 = 2;

impl ArteryBytes {
    /// # Safety
    /// `data` points to `size` readable bytes, or size is 0.
    unsafe fn text<'a>(self) -> Result<&'a str, Failure> {
        if self.size == 0 {
            return Ok("");
        }
        std::str::from_utf8(std::slice::from_raw_parts(self.data, self.size))
            .map_err(|_| Failure::Failed { line: 0, message: "the text is not valid UTF-8".into() })
    }
}

/// # Safety
/// `data` points to `count` items, or count is 0.
unsafe fn list<'a, T>(data: *const T, count: usize) -> &'a [T] {
    if count == 0 { &[] } else { std::slice::from_raw_parts(data, count) }
}

fn leak<T>(items: Vec<T>) -> (*const T, usize) {
    let size = items.len();
    (Box::into_raw(items.into_boxed_slice()) as *const T, size)
}

fn fill(result: Result<Output, Failure>) -> ArteryTemplateOutput {
    let (status, line, text, literal) = match result {
        Ok(output) => (OK, 0, output.text, output.literal),
        Err(Failure::Raised(text)) => (RAISED, 0, text, Vec::new()),
        Err(Failure::Failed { line, message }) => (FAILED, line as u32, message, Vec::new()),
    };
    let ranges = literal.iter().map(|r| ArteryRange { begin: r.start, end: r.end }).collect();
    let (data, size) = leak(text.into_bytes());
    let (literal, literal_count) = leak::<ArteryRange>(ranges);
    ArteryTemplateOutput { status, line, text: ArteryBytes { data, size }, literal, literal_count }
}

/// Runs `work` on a deep stack of its own; a panic is an error of this call alone.
fn isolated<T: Send>(work: impl FnOnce() -> Result<T, Failure> + Send) -> Result<T, Failure> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    let error = |message: &str| Failure::Failed { line: 0, message: message.into() };
    let run = || {
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("template".into()).stack_size(STACK_BYTES);
            match thread.spawn_scoped(scope, work) {
                Err(e) => Err(error(&format!("no thread for the template: {e}"))),
                Ok(handle) => {
                    handle.join().unwrap_or_else(|_| Err(error("the template engine panicked")))
                }
            }
        })
    };
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err(error("the template engine panicked")))
}

/// # Safety
/// All pointers are valid for their sizes during the call. `output` is written in every case.
#[no_mangle]
pub unsafe extern "C" fn artery_template_compile(
    source: ArteryBytes,
    bos: ArteryBytes,
    eos: ArteryBytes,
    control: *const ArteryBytes,
    control_count: usize,
    output: *mut ArteryTemplateOutput,
) -> *mut Template {
    let read = || -> Result<_, Failure> {
        let texts: Result<Vec<String>, Failure> =
            list(control, control_count).iter().map(|t| t.text().map(str::to_string)).collect();
        Ok((source.text()?, bos.text()?, eos.text()?, texts?))
    };
    let compiled = read().and_then(|(source, bos, eos, control)| {
        isolated(move || Template::compile(source, control, bos, eos))
    });
    let (template, result) = match compiled {
        Ok(template) => {
            (Box::into_raw(Box::new(template)), Ok(Output { text: String::new(), literal: Vec::new() }))
        }
        Err(failure) => (std::ptr::null_mut(), Err(failure)),
    };
    output.write(fill(result));
    template
}

/// # Safety
/// `template` came from artery_template_compile and was not freed; pointers of `input` are valid.
#[no_mangle]
pub unsafe extern "C" fn artery_template_render(
    template: *const Template,
    input: *const ArteryTemplateInput,
    output: *mut ArteryTemplateOutput,
) {
    let (template, input) = (&*template, &*input);
    let read = || -> Result<_, Failure> {
        let messages: Result<Vec<&str>, Failure> =
            list(input.messages, input.message_count).iter().map(|m| m.text()).collect();
        Ok(Input {
            messages: messages?,
            tools: input.tools.text()?,
            documents: input.documents.text()?,
            kwargs: input.kwargs.text()?,
            now: input.now.text()?,
            add_generation_prompt: input.add_generation_prompt,
            continue_final_message: input.continue_final_message,
            as_sent: input.as_sent,
        })
    };
    let result = read().and_then(|parsed| isolated(move || template.render(&parsed)));
    output.write(fill(result));
}

/// # Safety
/// `template` came from artery_template_compile and is not used again; null is allowed.
#[no_mangle]
pub unsafe extern "C" fn artery_template_free(template: *mut Template) {
    if !template.is_null() {
        let template = Box::from_raw(template);
        // The compiled source can be a deep tree as well.
        let _ = isolated(move || {
            drop(template);
            Ok(())
        });
    }
}

/// # Safety
/// `output` was written by one of the functions above and is freed once.
#[no_mangle]
pub unsafe extern "C" fn artery_template_output_free(output: *mut ArteryTemplateOutput) {
    let output = &*output;
    drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(output.text.data as *mut u8, output.text.size)));
    drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(
        output.literal as *mut ArteryRange,
        output.literal_count,
    )));
}
