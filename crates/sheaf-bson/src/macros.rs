//! The macros `doc!` and `array!`: documents written as literals.

/// Builds a [`DocBuf`](crate::DocBuf): `doc! {"a": 1, name: {"c": [1, 2.5, null]}}`.
///
/// Keys are expressions that are `AsRef<str>`; values are expressions of any
/// type that is [`AppendBson`](crate::AppendBson), nested `{...}`, `[...]`, or `null`.
#[macro_export]
macro_rules! doc {
    ($($tokens:tt)*) => {{
        #[allow(unused_mut)]
        let mut builder = $crate::DocBuilder::new();
        $crate::doc_elements!(builder () $($tokens)*);
        builder.finish()
    }};
}

/// Builds an [`ArrayBuf`](crate::ArrayBuf): `array![1, "x", {"a": null}]`.
#[macro_export]
macro_rules! array {
    ($($tokens:tt)*) => {{
        #[allow(unused_mut)]
        let mut builder = $crate::DocBuilder::new();
        $crate::array_elements!(builder $($tokens)*);
        $crate::ArrayBuf::from_vec_unchecked(builder.finish_into())
    }};
}

/// Collects key tokens up to a colon, then takes one value.
#[doc(hidden)]
#[macro_export]
macro_rules! doc_elements {
    ($b:ident ()) => {};
    ($b:ident ($($key:tt)+) : { $($inner:tt)* } $(, $($rest:tt)*)?) => {
        $b.begin_document($($key)+);
        $crate::doc_elements!($b () $($inner)*);
        $b.end();
        $crate::doc_elements!($b () $($($rest)*)?);
    };
    ($b:ident ($($key:tt)+) : [ $($inner:tt)* ] $(, $($rest:tt)*)?) => {
        $b.begin_array($($key)+);
        $crate::array_elements!($b $($inner)*);
        $b.end();
        $crate::doc_elements!($b () $($($rest)*)?);
    };
    ($b:ident ($($key:tt)+) : null $(, $($rest:tt)*)?) => {
        $b.append($($key)+, $crate::RawValue::Null);
        $crate::doc_elements!($b () $($($rest)*)?);
    };
    ($b:ident ($($key:tt)+) : $value:expr $(, $($rest:tt)*)?) => {
        $b.append_bson($($key)+, &$value);
        $crate::doc_elements!($b () $($($rest)*)?);
    };
    ($b:ident ($($key:tt)*) $next:tt $($rest:tt)*) => {
        $crate::doc_elements!($b ($($key)* $next) $($rest)*);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! array_elements {
    ($b:ident) => {};
    ($b:ident { $($inner:tt)* } $(, $($rest:tt)*)?) => {
        $b.push_begin_document();
        $crate::doc_elements!($b () $($inner)*);
        $b.end();
        $crate::array_elements!($b $($($rest)*)?);
    };
    ($b:ident [ $($inner:tt)* ] $(, $($rest:tt)*)?) => {
        $b.push_begin_array();
        $crate::array_elements!($b $($inner)*);
        $b.end();
        $crate::array_elements!($b $($($rest)*)?);
    };
    ($b:ident null $(, $($rest:tt)*)?) => {
        $b.push($crate::RawValue::Null);
        $crate::array_elements!($b $($($rest)*)?);
    };
    ($b:ident $value:expr $(, $($rest:tt)*)?) => {
        $b.push_bson(&$value);
        $crate::array_elements!($b $($($rest)*)?);
    };
}
