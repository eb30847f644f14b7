/**
 * A nominal type: no other kind of number is assignable to `Brand<number, 'BlockId'>`.
 * The tag exists only at compile time; at run time a branded value is the plain value.
 */
declare const brandTag: unique symbol;

export type Brand<T, Tag extends string> = T & { readonly [brandTag]: Tag };
