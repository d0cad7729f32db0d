// Package files makes a fleet look like one ComfyUI with one input folder and
// one output folder.
//
// A [job.FileRef] is a file's name as clients know it. Each tenant has a name space of its own,
// kept in Redis: (type, subfolder, filename) to an [Entry], which says where the bytes are. The
// bytes are in a [Storage], or still only on the instance that made them.
//
//   - Uploads are stored by content and named by ComfyUI's own rules
//     ([Store.Upload], [Uploads]).
//   - Outputs get their name before anybody sees them ([Store.AllotOutputs])
//     and are copied to the storage by a [Collector]; until that is done [View]
//     reads through to the instance.
//   - Inputs of a job are pinned when it is accepted ([Store.Pin]) and pushed to
//     the chosen instance before dispatch ([Pusher]).
//
// Four laws keep this whole when a process dies at any point:
//
//   - Bytes first, then the name. A blob is complete before an entry points to
//     it, so a visible file is never broken; what a death leaves behind is a blob
//     without a name, which [Retention.Sweep] removes.
//   - A blob is held before it is written and counted while it is named. Sweep
//     takes neither the held nor the counted, so it cannot race an upload.
//   - A name is allotted in one script. Two instances that both made
//     ComfyUI_00001_.png never get the same name. With a Redis that may lose its
//     last writes, the storage grants the numbers in blocks, each block once, so
//     that a name is not given again that Redis has forgotten.
//   - Nothing on an instance is overwritten that the hub did not put there.
package files
