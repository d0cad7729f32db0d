package resultcache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// ErrUnknown means that an instance does not say which file a model is.
var ErrUnknown = errors.New("resultcache: the instance does not list a model file")

// Stamp identifies the files of the models at an instance: their sizes and when they were changed.
// get answers GET requests there. Errors: ErrUnknown, those of get.
func (s Subject) Stamp(ctx context.Context, get func(ctx context.Context, path string) ([]byte, error)) (string, error) {
	var stamp strings.Builder
	var listed []file
	for n, m := range s.Models {
		if n == 0 || s.Models[n-1].Folder != m.Folder {
			text, err := get(ctx, "/experiment/models/"+url.PathEscape(m.Folder))
			if err != nil {
				return "", err
			}
			listed = nil
			if err := json.Unmarshal(text, &listed); err != nil {
				return "", fmt.Errorf("%w: %w", ErrUnknown, err)
			}
		}
		at := slices.IndexFunc(listed, func(f file) bool { return strings.ReplaceAll(f.Name, `\`, "/") == m.Name })
		if at < 0 || listed[at].Modified == "" || listed[at].Size == "" {
			return "", ErrUnknown
		}
		fmt.Fprintf(&stamp, "%s/%s %s %s\n", m.Folder, m.Name, listed[at].Size, listed[at].Modified)
	}
	return stamp.String(), nil
}

// file is a model file in a listing. The first of a name is the one that is loaded.
type file struct {
	Name     string      `json:"name"`
	Modified json.Number `json:"modified"`
	Size     json.Number `json:"size"`
}
