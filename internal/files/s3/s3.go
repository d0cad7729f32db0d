// Package s3 links the driver of object stores, for a storage at `s3://bucket`, into the program
// that imports it. It stands apart from package files because the SDK behind it is a third of
// what a program with a storage links.
package s3

import _ "gocloud.dev/blob/s3blob" // registers the scheme
