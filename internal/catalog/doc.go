// Package catalog knows which nodes the fleet has.
//
// Each instance describes its node classes in /object_info. [Library.Parse] parses
// one such body into an [Info]; equal bodies, and equal classes of different
// bodies, are kept only once. [Merge] combines the infos of all instances, and of
// those that left recently, into a [Catalog], which answers three questions without
// asking an instance:
//
//   - Is a prompt valid? [Catalog.Validate] answers as ComfyUI does, in its
//     words and formats, and splices coerced literals into the graph.
//   - What does a prompt need? [Catalog.Requirements] lists node classes and
//     options; [Info.Satisfies] compares the list with one instance.
//   - Which files does a prompt name? [Catalog.InputFiles] finds them.
//
// [ParseRequest] parses the body of POST /prompt.
//
// # When the hub cannot know
//
// A node class may have its own validate function, which replaces the checks of
// bounds, options and types, and which object_info does not mention. For ComfyUI's
// classes in nodes.py it is known which inputs are affected. For the lists of its
// extras, and for all these checks of custom node packs, it is not. In that case the
// outcome is recorded in [Verdict.Unsure] and the prompt is accepted. An instance that
// then refuses it does so before it runs anything, whereas a hub that refuses a good
// prompt makes a node unusable.
//
// # Versions
//
// ComfyUI's checks and error formats changed over time. The caller passes the
// [Version] that the hub emulates, which is the lowest of its fleet.
package catalog
