// Package notebook keeps what a process has noted in the last minutes in a folder, for the next
// process with the same folder.
//
// A note outlives kill -9 once it was written, a few microseconds after it was made. It is not
// synced to the disk, so it does not outlive the machine: of a page whose end is lost, the notes
// before are read. Notes are lost, and a warning is logged, while the disk takes none or gives none.
package notebook
