//! Finds the functions that a source file calls, and whether an async function calls them in place.

use std::fs;
use std::path::Path;

use syn::visit::{self, Visit};

use crate::architecture::source_reader::{attributes, is_for_tests};

/// Functions that run the work passed to them on another thread.
const ELSEWHERE: [&str; 8] =
    ["apart", "blocking", "computed", "computed_now", "generated", "judged", "on_models", "spawn_blocking"];

/// A call of a function.
pub(crate) struct Call {
    /// The last two parts of its path, as `fs::read`, or its name alone.
    pub(crate) name: String,
    /// Whether it runs on the thread of an async function.
    pub(crate) is_async: bool,
}

/// The calls in a file, except those of tests.
pub(crate) fn calls_in(file: &Path) -> Vec<Call> {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    calls_of(&text)
}

fn calls_of(text: &str) -> Vec<Call> {
    let syntax = syn::parse_file(text).unwrap();
    let mut finder = CallFinder { calls: Vec::new(), is_async: false };
    if !is_for_tests(&syntax.attrs) {
        finder.visit_file(&syntax);
    }
    finder.calls
}

struct CallFinder {
    calls: Vec<Call>,
    is_async: bool,
}

impl CallFinder {
    fn within(&mut self, is_async: bool, visit: impl FnOnce(&mut Self)) {
        let before = std::mem::replace(&mut self.is_async, is_async);
        visit(self);
        self.is_async = before;
    }

    /// Visits the arguments of a call; work for another thread does not run on this one.
    fn visit_arguments<'ast>(&mut self, called: &str, arguments: impl Iterator<Item = &'ast syn::Expr>) {
        let goes_elsewhere = ELSEWHERE.contains(&called);
        for argument in arguments {
            match argument {
                syn::Expr::Closure(closure) if goes_elsewhere => {
                    self.within(false, |finder| finder.visit_expr(&closure.body));
                }
                argument => self.visit_expr(argument),
            }
        }
    }
}

impl<'ast> Visit<'ast> for CallFinder {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.within(function.sig.asyncness.is_some(), |finder| visit::visit_item_fn(finder, function));
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.within(function.sig.asyncness.is_some(), |finder| visit::visit_impl_item_fn(finder, function));
    }

    fn visit_expr_async(&mut self, block: &'ast syn::ExprAsync) {
        self.within(true, |finder| visit::visit_expr_async(finder, block));
    }

    /// A named closure is passed to another thread later, or called by code that is.
    fn visit_local(&mut self, local: &'ast syn::Local) {
        let is_closure = local.init.as_ref().is_some_and(|init| matches!(&*init.expr, syn::Expr::Closure(_)));
        self.within(self.is_async && !is_closure, |finder| visit::visit_local(finder, local));
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        let syn::Expr::Path(path) = &*call.func else { return visit::visit_expr_call(self, call) };
        let parts: Vec<String> = path.path.segments.iter().map(|part| part.ident.to_string()).collect();
        let name = parts[parts.len().saturating_sub(2)..].join("::");
        self.visit_arguments(parts.last().map_or("", String::as_str), call.args.iter());
        self.calls.push(Call { name, is_async: self.is_async });
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        self.visit_expr(&call.receiver);
        self.visit_arguments(&call.method.to_string(), call.args.iter());
    }
}

#[test]
fn calls_are_found_where_they_run() {
    let text = "
        async fn show() {
            let text = std::fs::read(path);
            blocking(move || fs::read_to_string(path)).await;
            let work = move || html_of(text);
            self.pool.computed(move || html_of(text)).await;
            texts.map(|text| html_of(text));
        }
        fn page() { File::open(path); async { html_of(text) }; }
        #[cfg(test)]
        mod tests { async fn f() { File::open(path); } }";
    let mut found: Vec<_> = calls_of(text).into_iter().map(|call| (call.name, call.is_async)).collect();
    found.sort();
    let named = |name: &str, is_async| (name.to_owned(), is_async);
    let expected = [
        named("File::open", false),
        named("blocking", true),
        named("fs::read", true),
        named("fs::read_to_string", false),
        named("html_of", false),
        named("html_of", false),
        named("html_of", true),
        named("html_of", true),
    ];
    assert_eq!(found, expected);
}
