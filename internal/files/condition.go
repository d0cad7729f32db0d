package files

import (
	"net/http"
	"strings"
	"time"
)

// checkConditions decides a conditional request for a file: 200 to send it, 304 if the client has
// it, 412 if it is not the one that the client means.
func checkConditions(h http.Header, etag string, modified time.Time) int {
	// Headers only have whole seconds.
	modified = modified.Truncate(time.Second)
	if match := h.Get("If-Match"); match != "" {
		if !matchETag(match, etag, false) {
			return http.StatusPreconditionFailed
		}
	} else if since, err := http.ParseTime(h.Get("If-Unmodified-Since")); err == nil && modified.After(since) {
		return http.StatusPreconditionFailed
	}
	if match := h.Get("If-None-Match"); match != "" {
		if matchETag(match, etag, true) {
			return http.StatusNotModified
		}
	} else if since, err := http.ParseTime(h.Get("If-Modified-Since")); err == nil && !modified.After(since) {
		return http.StatusNotModified
	}
	return http.StatusOK
}

// rangeHolds reports whether the Range header counts: an If-Range must name the file that is there,
// or the client would join parts of two files. (ComfyUI's server ignores an ETag in If-Range.)
func rangeHolds(h http.Header, etag string, modified time.Time) bool {
	condition := h.Get("If-Range")
	if condition == "" {
		return true
	}
	if since, err := http.ParseTime(condition); err == nil {
		return !modified.Truncate(time.Second).After(since)
	}
	return condition == etag
}

// matchETag looks for an ETag in a list in the form of If-Match and If-None-Match.
func matchETag(list, etag string, weak bool) bool {
	for item := range strings.SplitSeq(list, ",") {
		item = strings.TrimSpace(item)
		if item == "*" {
			return true
		}
		if weak {
			item = strings.TrimPrefix(item, "W/")
		}
		if item == etag && etag != "" {
			return true
		}
	}
	return false
}
