/**
 * A nominal type: `Brand<number, 'BlockId'>` is a number that no other kind of number can be mistaken for.
 * The tag exists at compile time only; at run time a branded value is the bare value.
 */
declare const brandTag: unique symbol;

export type Brand<T, Tag extends string> = T & { readonly [brandTag]: Tag };
