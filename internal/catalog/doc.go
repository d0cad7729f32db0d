// Package catalog knows what nodes the fleet has.
//
// Each instance describes its node classes in /object_info. [Library.Parse]
// reads one such body into an [Info]; equal bodies, and equal classes of
// different bodies, are held once. [Merge] unites the infos of all instances,
// and of those that left lately, into a [Catalog], which answers three
// questions without asking an instance:
//
//   - Is a prompt valid? [Catalog.Validate] answers as ComfyUI does, in its
//     words and shapes, and splices coerced literals into the graph.
//   - What does a prompt need? [Catalog.Requirements] lists node classes and
//     options; [Info.Satisfies] holds the list against one instance.
//   - Which files does a prompt name? [Catalog.InputFiles] finds them.
//
// [ParseRequest] reads the body of POST /prompt.
//
// # When the hub cannot know
//
// A node class may have a validate function of its own, which replaces the
// checks of bounds, options and types, and object_info does not tell. For
// ComfyUI's own classes it is known which inputs that concerns; for the
// classes of custom node packs it is not. There the outcome of these checks is
// noted in [Verdict.Unsure] and the prompt is accepted: an instance that then
// refuses it does so before it runs anything, whereas a hub that refuses a
// good prompt makes a node unusable.
//
// # Versions
//
// ComfyUI's checks and error shapes changed over time. The caller passes the
// [Version] that the hub emulates, which is the lowest of its fleet.
package catalog
