//! The rules of ARCHITECTURE.md about who may depend on whom, checked against what cargo knows and what the sources say.
//!
//! Inside a crate, modules of the same parent may use each other in one direction only. A module uses another when a path in
//! it, or in a module below it, leads to that other or to a module below that; what the parent defines itself is free to
//! both, and what it re-exports belongs to the module that defines it. Code under `cfg(test)` does not count.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use proc_macro2::{Ident, TokenStream, TokenTree};
use serde_json::Value;
use syn::visit::{self, Visit};

/// Every crate with the crates of the workspace that it may use, lowest first.
const LAYERS: [(&str, &[&str]); 10] = [
    ("hone-protocol", &[]),
    ("hone-files", &[]),
    ("hone-bus", &["hone-protocol"]),
    ("hone-kernels", &[]),
    ("hone-engine", &["hone-protocol", "hone-files", "hone-kernels"]),
    ("hone-models", &["hone-protocol", "hone-files"]),
    ("hone-memory", &["hone-protocol", "hone-files"]),
    ("hone-quality", &["hone-protocol"]),
    ("hone-agents", &["hone-protocol", "hone-bus", "hone-quality", "hone-memory"]),
    (
        "hone",
        &[
            "hone-protocol",
            "hone-files",
            "hone-bus",
            "hone-engine",
            "hone-models",
            "hone-memory",
            "hone-quality",
            "hone-agents",
        ],
    ),
];

/// Packages that only one crate may name among its dependencies.
const OWNERS: [(&str, &[&str]); 3] = [
    ("hone-engine", &["candle-core", "candle-nn", "candle-transformers", "tokenizers"]),
    ("hone-models", &["hf-hub", "rustls", "rustls-native-certs", "ureq"]),
    ("hone-memory", &["sled", "usearch"]),
];

/// Sources and folders, from the workspace's root, that may hold `unsafe`.
const UNSAFE_ALLOWED: [&str; 3] =
    ["crates/kernels/", "crates/engine/src/gguf/mapping.rs", "crates/engine/tests/support/allocations.rs"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// What cargo knows about the packages of the workspace.
fn packages() -> Vec<Value> {
    let cargo = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(cargo.status.success(), "{}", String::from_utf8_lossy(&cargo.stderr));
    let metadata: Value = serde_json::from_slice(&cargo.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// Dependencies of every package of the workspace, those of tests and builds left out.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    packages()
        .iter()
        .map(|package| {
            let all = package["dependencies"].as_array().unwrap().iter();
            let normal = all.filter(|dependency| dependency["kind"].is_null());
            let names = normal.map(|dependency| dependency["name"].as_str().unwrap().to_owned());
            (package["name"].as_str().unwrap().to_owned(), names.collect())
        })
        .collect()
}

#[test]
fn every_crate_uses_only_crates_below_it() {
    let dependencies = dependencies();
    let known: BTreeSet<&str> = LAYERS.iter().map(|(name, _)| *name).collect();
    let found: BTreeSet<&str> = dependencies.keys().map(String::as_str).collect();
    assert_eq!(found, known, "a crate is missing from LAYERS or from the workspace");
    for (name, allowed) in LAYERS {
        let used = dependencies[name].iter().map(String::as_str).filter(|used| known.contains(used));
        let forbidden: Vec<&str> = used.filter(|used| !allowed.contains(used)).collect();
        assert!(forbidden.is_empty(), "{name} may not depend on {forbidden:?}");
    }
}

#[test]
fn layers_have_no_cycle() {
    for (index, (name, allowed)) in LAYERS.iter().enumerate() {
        let below: Vec<&str> = LAYERS[..index].iter().map(|(name, _)| *name).collect();
        assert!(allowed.iter().all(|used| below.contains(used)), "{name} uses a crate that does not stand below it");
    }
}

#[test]
fn packages_with_one_owner_are_used_by_it_alone() {
    for (name, used) in dependencies() {
        for (owner, packages) in OWNERS {
            let foreign: Vec<&&str> =
                packages.iter().filter(|package| name != owner && used.contains(**package)).collect();
            assert!(foreign.is_empty(), "only {owner} may depend on {foreign:?}, and {name} does");
        }
    }
}

#[test]
fn unsafe_stands_only_where_it_is_allowed() {
    let mut sources = Vec::new();
    for folder in ["crates", "tests", "benches"] {
        collect_sources(&root().join(folder), &mut sources);
    }
    assert!(sources.len() > 30, "the sources were not found");
    for source in sources {
        let name = source.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/");
        let text = fs::read_to_string(&source).unwrap();
        let code = text.lines().map(|line| line.split("//").next().unwrap());
        // Written in two parts, so that this test does not find itself.
        let marks = [concat!("uns", "afe {"), concat!("uns", "afe fn"), concat!("uns", "afe impl")];
        let holds_unsafe = code.into_iter().any(|line| marks.iter().any(|mark| line.contains(mark)));
        let is_allowed = UNSAFE_ALLOWED.iter().any(|allowed| name.starts_with(allowed));
        assert!(!holds_unsafe || is_allowed, "{name} may not hold unsafe code");
    }
}

fn collect_sources(folder: &Path, sources: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect_sources(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push(path);
        }
    }
}

/// A module's place: the names from the crate's root down to it.
type ModulePath = Vec<String>;

/// What a module can name, and where its code names something.
#[derive(Default)]
struct Module {
    items: BTreeSet<String>,
    imports: Vec<Import>,
    uses: Vec<Use>,
}

/// A name that a `use` brings in; without a name, all that the path holds.
struct Import {
    name: Option<String>,
    path: Vec<String>,
}

/// A path as it stands in the code.
struct Use {
    path: Vec<String>,
    /// Of a `use`, whose path may end at a module; any other path that ends there means an item of the same name.
    imports: bool,
    place: String,
}

impl Module {
    /// Whether the line is a name that a `use` brought in, which is a use itself.
    fn repeats_an_import(&self, one: &Use) -> bool {
        !one.imports
            && one.path.len() == 1
            && self.imports.iter().any(|import| import.name.as_ref() == one.path.first())
    }
}

/// The modules of one crate.
#[derive(Default)]
struct Modules(BTreeMap<ModulePath, Module>);

/// Where one module uses another of the same parent: parent, user and used, with the lines that do it.
type Uses = BTreeMap<(ModulePath, String, String), BTreeSet<String>>;

impl Modules {
    /// The modules that belong to a crate's root file.
    fn read(root: &Path) -> Self {
        let mut modules = Self::default();
        SourceReader::read_file(&mut modules, root, root.parent().unwrap(), &[]);
        modules
    }

    /// The modules through which a path leads, the one it ends in among them. None where the crate defines no such name.
    fn resolve(&self, at: &[String], path: &[String], imports: bool, depth: usize) -> Option<BTreeSet<ModulePath>> {
        let Some((name, rest)) = path.split_first() else {
            return Some(BTreeSet::from([at.to_vec()]));
        };
        let mut passed = match name.as_str() {
            _ if depth > 32 => None,
            "crate" => self.resolve(&[], rest, imports, depth + 1),
            "self" => self.resolve(at, rest, imports, depth + 1),
            "super" => self.resolve(at.split_last()?.1, rest, imports, depth + 1),
            _ => self.resolve_name(at, name, rest, imports, depth + 1),
        }?;
        passed.insert(at.to_vec());
        Some(passed)
    }

    /// The same for a path that begins with a name that `at` defines or imports.
    fn resolve_name(
        &self,
        at: &[String],
        name: &str,
        rest: &[String],
        imports: bool,
        depth: usize,
    ) -> Option<BTreeSet<ModulePath>> {
        let module = &self.0[at];
        let child = [at, &[name.to_owned()]].concat();
        let is_item = module.items.contains(name);
        if self.0.contains_key(&child) && (!rest.is_empty() || (imports && !is_item)) {
            return self.resolve(&child, rest, imports, depth);
        }
        let named: Vec<_> = module.imports.iter().filter(|import| import.name.as_deref() == Some(name)).collect();
        if !named.is_empty() {
            let each = named.iter().map(|import| [&import.path, rest].concat());
            return Some(each.filter_map(|path| self.resolve(at, &path, imports, depth)).flatten().collect());
        }
        if is_item {
            return Some(BTreeSet::new());
        }
        let globs = module.imports.iter().filter(|import| import.name.is_none());
        let mut each = globs.map(|glob| [&glob.path[..], &[name.to_owned()], rest].concat());
        each.find_map(|path| self.resolve(at, &path, imports, depth))
    }

    /// Which modules use which of the same parent.
    fn uses(&self) -> Uses {
        let mut uses = Uses::new();
        for (user, module) in &self.0 {
            for one in module.uses.iter().filter(|one| !module.repeats_an_import(one)) {
                for used in self.resolve(user, &one.path, one.imports, 0).unwrap_or_default() {
                    let same = user.iter().zip(&used).take_while(|(left, right)| left == right).count();
                    if same < user.len().min(used.len()) {
                        let edge = (user[..same].to_vec(), user[same].clone(), used[same].clone());
                        uses.entry(edge).or_default().insert(format!("{}: {}", one.place, one.path.join("::")));
                    }
                }
            }
        }
        uses
    }
}

/// The uses that make cycles, a text for each cycle.
fn cycles(uses: &Uses) -> Vec<String> {
    let mut found = BTreeMap::<_, String>::new();
    for ((parent, user, used), places) in uses {
        let cycle: BTreeSet<&str> = reached(uses, parent, user)
            .into_iter()
            .filter(|other| reached(uses, parent, other).contains(user.as_str()))
            .collect();
        if cycle.contains(used.as_str()) {
            let text = found.entry((parent, cycle)).or_default();
            *text += &format!("  {user} uses {used}\n");
            places.iter().for_each(|place| *text += &format!("    {place}\n"));
        }
    }
    let title = |parent: &[String], cycle: BTreeSet<&str>| {
        let names = cycle.into_iter().collect::<Vec<_>>().join(", ");
        if parent.is_empty() { names } else { format!("{}: {names}", parent.join("::")) }
    };
    found.into_iter().map(|((parent, cycle), text)| format!("{}\n{text}", title(parent, cycle))).collect()
}

/// The modules that one of the same parent uses, directly or through others.
fn reached<'a>(uses: &'a Uses, parent: &[String], from: &'a str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut waiting = vec![from];
    while let Some(next) = waiting.pop() {
        let of_next = uses.keys().filter(|(of, user, _)| of == parent && user == next);
        waiting.extend(of_next.map(|(_, _, used)| used.as_str()).filter(|used| reached.insert(*used)));
    }
    reached
}

/// Collects what a module names from its syntax, and reads the modules that it declares.
struct SourceReader<'a> {
    modules: &'a mut Modules,
    path: ModulePath,
    file: &'a Path,
    /// Where the files of the modules below lie.
    folder: PathBuf,
}

impl SourceReader<'_> {
    fn read_file(modules: &mut Modules, file: &Path, folder: &Path, path: &[String]) {
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let syntax = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        modules.0.entry(path.to_vec()).or_default();
        if !is_for_tests(&syntax.attrs) {
            let mut reader = SourceReader { modules, path: path.to_vec(), file, folder: folder.to_owned() };
            syntax.items.iter().for_each(|item| reader.visit_item(item));
        }
    }

    fn module(&mut self) -> &mut Module {
        self.modules.0.get_mut(&self.path).unwrap()
    }

    fn add_use(&mut self, path: Vec<String>, imports: bool, at: &Ident) {
        let file = self.file.strip_prefix(root()).unwrap_or(self.file);
        let place = format!("{}:{}", file.display(), at.span().start().line);
        self.module().uses.push(Use { path, imports, place });
    }

    /// What a `use` brings in, with the path that leads to the tree already in `path`.
    fn add_import(&mut self, mut path: Vec<String>, tree: &syn::UseTree, at: &Ident) {
        let (name, ident) = match tree {
            syn::UseTree::Path(step) => {
                path.push(step.ident.to_string());
                return self.add_import(path, &step.tree, &step.ident);
            }
            syn::UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.add_import(path.clone(), tree, at));
            }
            syn::UseTree::Glob(_) => (None, at),
            syn::UseTree::Name(name) => (Some(&name.ident), &name.ident),
            syn::UseTree::Rename(rename) => (Some(&rename.rename), &rename.ident),
        };
        if !matches!(tree, syn::UseTree::Glob(_)) && ident != "self" {
            path.push(ident.to_string());
        }
        let name = name.map(|name| if name == "self" { path.last().unwrap().clone() } else { name.to_string() });
        self.add_use(path.clone(), true, ident);
        self.module().imports.push(Import { name, path });
    }

    /// The paths in what a macro or an attribute is given, which syn leaves unread; serde's stand in string literals.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<Ident> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.add_token_path(&path);
                        path.clear();
                    }
                    path.push(ident);
                    colons = 0;
                }
                other => {
                    self.add_token_path(&path);
                    (path, colons) = (Vec::new(), 0);
                    match other {
                        TokenTree::Group(group) => self.add_tokens(group.stream()),
                        TokenTree::Literal(literal) => self.add_quoted_path(literal),
                        _ => {}
                    }
                }
            }
        }
        self.add_token_path(&path);
    }

    fn add_token_path(&mut self, path: &[Ident]) {
        if path.len() > 1 {
            self.add_use(path.iter().map(Ident::to_string).collect(), false, &path[0]);
        }
    }

    fn add_quoted_path(&mut self, literal: proc_macro2::Literal) {
        let quoted = syn::parse_str::<syn::LitStr>(&literal.to_string());
        if let Some(path) = quoted.ok().and_then(|text| syn::parse_str::<syn::Path>(&text.value()).ok()) {
            let ident = Ident::new("path", literal.span());
            self.add_use(path.segments.iter().map(|segment| segment.ident.to_string()).collect(), false, &ident);
        }
    }

    /// Reads the module behind a declaration without a body.
    fn read_declared(&mut self, path: &[String], declared: &syn::ItemMod) {
        let inside = self.folder.join(path.last().unwrap());
        match declared.attrs.iter().find_map(named_file) {
            Some(name) => SourceReader::read_file(self.modules, &self.file.with_file_name(name), &inside, path),
            None => SourceReader::read_file(self.modules, &inside.with_extension("rs"), &inside, path),
        }
    }
}

/// The file that a `#[path = "…"]` names, beside the file that holds it.
fn named_file(attribute: &syn::Attribute) -> Option<String> {
    let value = attribute.meta.require_name_value().ok().filter(|value| value.path.is_ident("path"))?;
    match &value.value {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(name), .. }) => Some(name.value()),
        _ => None,
    }
}

impl<'ast> Visit<'ast> for SourceReader<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if is_for_tests(attributes(item)) {
            return;
        }
        self.module().items.extend(item_name(item).map(Ident::to_string));
        visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, declared: &'ast syn::ItemMod) {
        let path = [&self.path[..], &[declared.ident.to_string()]].concat();
        let Some((_, items)) = &declared.content else {
            return self.read_declared(&path, declared);
        };
        self.modules.0.entry(path.clone()).or_default();
        let folder = self.folder.join(path.last().unwrap());
        let mut reader = SourceReader { modules: self.modules, path, file: self.file, folder };
        items.iter().for_each(|item| reader.visit_item(item));
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if item.leading_colon.is_none() {
            self.add_import(Vec::new(), &item.tree, &Ident::new("use", item.use_token.span));
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            let names = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.add_use(names, false, &path.segments[0].ident);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        self.add_tokens(called.tokens.clone());
        visit::visit_macro(self, called);
    }

    fn visit_meta_list(&mut self, attribute: &'ast syn::MetaList) {
        self.add_tokens(attribute.tokens.clone());
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        let attributes = match item {
            syn::ImplItem::Const(item) => &item.attrs,
            syn::ImplItem::Fn(item) => &item.attrs,
            syn::ImplItem::Type(item) => &item.attrs,
            syn::ImplItem::Macro(item) => &item.attrs,
            _ => &Vec::new(),
        };
        if !is_for_tests(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if !is_for_tests(&local.attrs) {
            visit::visit_local(self, local);
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if !is_for_tests(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        if !is_for_tests(&variant.attrs) {
            visit::visit_variant(self, variant);
        }
    }
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Union(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// The name that an item gives to what it defines, modules left out.
fn item_name(item: &syn::Item) -> Option<&Ident> {
    match item {
        syn::Item::Const(item) => Some(&item.ident),
        syn::Item::Enum(item) => Some(&item.ident),
        syn::Item::Fn(item) => Some(&item.sig.ident),
        syn::Item::Macro(item) => item.ident.as_ref(),
        syn::Item::Static(item) => Some(&item.ident),
        syn::Item::Struct(item) => Some(&item.ident),
        syn::Item::Trait(item) => Some(&item.ident),
        syn::Item::Type(item) => Some(&item.ident),
        syn::Item::Union(item) => Some(&item.ident),
        _ => None,
    }
}

/// Whether code with these attributes is compiled for tests only.
fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::Path(path) => path.is_ident("test"),
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            syn::parse2(list.tokens.clone()).is_ok_and(|meta| needs_tests(&meta))
        }
        _ => false,
    })
}

/// Whether a condition of `cfg` holds in tests only.
fn needs_tests(condition: &syn::Meta) -> bool {
    let syn::Meta::List(list) = condition else {
        return condition.path().is_ident("test");
    };
    let all = syn::punctuated::Punctuated::<syn::Meta, syn::Token![,]>::parse_terminated;
    let conditions = syn::parse::Parser::parse2(all, list.tokens.clone()).unwrap();
    let mut conditions = conditions.iter();
    match list.path.get_ident().map(Ident::to_string).as_deref() {
        Some("all") => conditions.any(needs_tests),
        Some("any") => conditions.all(needs_tests),
        _ => false,
    }
}

#[test]
fn modules_of_one_parent_use_each_other_in_one_direction() {
    let mut found = Vec::new();
    for package in packages() {
        for target in package["targets"].as_array().unwrap() {
            let kind = target["kind"][0].as_str().unwrap();
            if ["lib", "bin"].contains(&kind) {
                let modules = Modules::read(Path::new(target["src_path"].as_str().unwrap()));
                let name = package["name"].as_str().unwrap();
                found.extend(cycles(&modules.uses()).iter().map(|cycle| format!("{name}: {cycle}")));
            }
        }
    }
    assert!(found.is_empty(), "{} cycles between modules\n\n{}", found.len(), found.join("\n"));
}

/// The cycles of a crate whose files are given with their texts, the first line of each.
fn cycles_of(files: &[(&str, &str)]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    let modules = Modules::read(&folder.path().join(files[0].0));
    cycles(&modules.uses()).iter().map(|cycle| cycle.lines().next().unwrap().to_owned()).collect()
}

#[test]
fn a_cycle_is_found_however_it_is_written() {
    let used = ("b.rs", "pub use super::a::Thing as Other; pub fn made() {}");
    for user in [
        "use crate::b::made; pub struct Thing;",
        "use super::{b::{self, Other}}; pub struct Thing;",
        "pub struct Thing; fn f() { crate::b::made() }",
        "pub struct Thing(Vec<super::b::Other>);",
        "pub struct Thing; fn f() { println!(\"{:?}\", super::b::made()) }",
        "#[derive(Deserialize)] pub struct Thing { #[serde(default = \"crate::b::made\")] field: u8 }",
        "pub struct Thing; mod inner { fn f() { use crate::b; b::made() } }",
        "use super::*; pub struct Thing; fn f() { b::made() }",
        "pub struct Thing; fn f() { super::made() }",
        "use super::made; pub struct Thing;",
    ] {
        let files = [("lib.rs", "mod a; mod b; pub use b::made;"), ("a.rs", user), used];
        assert_eq!(cycles_of(&files), ["a, b"], "{user}");
    }
}

#[test]
fn cycles_are_found_below_modules_and_over_several() {
    let files = [
        ("main.rs", "mod top;"),
        ("top.rs", "mod a; mod b; mod c; mod d;"),
        ("top/a.rs", "use super::b::B; pub struct A;"),
        ("top/b.rs", "mod deep; pub struct B;"),
        ("top/b/deep.rs", "use crate::top::c::C;"),
        ("top/c.rs", "use super::a::A; pub struct C;"),
        ("top/d.rs", "use super::a::A;"),
    ];
    assert_eq!(cycles_of(&files), ["top: a, b, c"]);
}

#[test]
fn what_the_parent_defines_is_free_and_tests_do_not_count() {
    let files = [
        ("lib.rs", "mod a; mod b; pub struct Own; fn b() {}"),
        ("a.rs", "use super::Own; use super::b::B; pub struct A; fn f() { super::b() }"),
        (
            "b.rs",
            "use crate::Own; use crate::b as parents; pub struct B;
            #[cfg(test)] use super::a::A;
            #[cfg(all(test, unix))] mod tests { use crate::a::A; }
            #[test] fn f() { crate::a::A; }
            impl B { #[cfg(test)] fn f() { crate::a::A; } }",
        ),
    ];
    assert_eq!(cycles_of(&files), [""; 0]);
}
