//! Reads the modules of a crate: their definitions, imports and names.

use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::visit::{self, Visit};

use crate::architecture::modules::{Import, Module, ModulePath, Modules, Use};
use crate::support::root;

/// Reads a file as the module at `path`, and the modules that it declares from `folder`.
pub(crate) fn read_file(modules: &mut Modules, file: &Path, folder: &Path, path: &[String]) {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let syntax = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    modules.0.entry(path.to_vec()).or_default();
    if !is_for_tests(&syntax.attrs) {
        let mut reader = SourceReader { modules, path: path.to_vec(), file, folder: folder.to_owned() };
        syntax.items.iter().for_each(|item| reader.visit_item(item));
    }
}

/// Collects the names that a module uses from its syntax, and reads the modules that it declares.
struct SourceReader<'a> {
    modules: &'a mut Modules,
    path: ModulePath,
    file: &'a Path,
    /// The folder of the files of the modules below.
    folder: PathBuf,
}

impl SourceReader<'_> {
    fn module(&mut self) -> &mut Module {
        self.modules.0.get_mut(&self.path).unwrap()
    }

    fn add_use(&mut self, path: Vec<String>, imports: bool, at: &Ident) {
        let file = self.file.strip_prefix(root()).unwrap_or(self.file);
        let place = format!("{}:{}", file.display(), at.span().start().line);
        self.module().uses.push(Use { path, imports, place });
    }

    /// Adds the imports of a `use`, with the path that leads to the tree already in `path`.
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

    /// Adds the paths in the tokens of a macro or an attribute, which syn leaves unparsed; serde's are in string
    /// literals.
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
            Some(name) => read_file(self.modules, &self.file.with_file_name(name), &inside, path),
            None => read_file(self.modules, &inside.with_extension("rs"), &inside, path),
        }
    }
}

/// The file that a `#[path = "…"]` names, next to the file that contains it.
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

pub(crate) fn attributes(item: &syn::Item) -> &[syn::Attribute] {
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

/// The name that an item defines, except for modules.
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
pub(crate) fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
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
