package hubapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
)

// linkPath begins the paths of links at the hub.
const linkPath = "/hub/files/"

var (
	errLink   = errors.New("the hub gave a link that is no path")
	errUpload = errors.New("the hub did not say under which name it keeps an upload")
)

// Upload streams an input to the hub under a name, and returns the name that it
// got. The same bytes under the same name stay one file.
func (c *Client) Upload(ctx context.Context, tenant, name string, content io.Reader) (string, error) {
	read, write := io.Pipe()
	form := multipart.NewWriter(write)
	go func() {
		part, err := form.CreateFormFile("image", name)
		if err == nil {
			_, err = io.Copy(part, content)
		}
		if err == nil {
			err = form.Close()
		}
		write.CloseWithError(err)
	}()
	defer read.Close()
	response, err := c.do(ctx, http.MethodPost, uploadPath, tenant, form.FormDataContentType(), read)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	var stored struct{ Name, Subfolder string }
	if json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(&stored) != nil || stored.Name == "" {
		return "", errUpload
	}
	if stored.Subfolder != "" {
		return stored.Subfolder + "/" + stored.Name, nil
	}
	return stored.Name, nil
}

// View opens a file. size is in bytes, -1 if the hub does not say. The caller
// closes the body.
func (c *Client) View(ctx context.Context, tenant string, ref comfyui.FileRef) (body io.ReadCloser, size int64, err error) {
	if !local(ref.Subfolder) { // the hub would answer as to a key that permits too little
		return nil, 0, fmt.Errorf("%w: its folder is none", ErrNotFound)
	}
	response, err := c.do(ctx, http.MethodGet, viewPath(ref), tenant, "", nil)
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		return nil, 0, fmt.Errorf("%w: %w", ErrNotFound, refused)
	}
	if err != nil {
		return nil, 0, err
	}
	return response.Body, response.ContentLength, nil
}

// local reports whether a folder of a file is below the one that holds all.
func local(folder string) bool {
	return folder == "" || filepath.IsLocal(strings.ReplaceAll(folder, `\`, "/"))
}

// Link requests a URL from which anybody who knows it can fetch a file of a tenant,
// for a time. It is a path of the hub, with its query.
func (c *Client) Link(ctx context.Context, tenant string, ref comfyui.FileRef, life time.Duration) (string, error) {
	var link struct {
		URL string `json:"url"`
	}
	err := c.post(ctx, "/hub/files", tenant, map[string]any{
		"filename": ref.Filename, "subfolder": ref.Subfolder, "type": ref.Type, "expires_in": int64(life / time.Second),
	}, &link)
	if err == nil && (!strings.HasPrefix(link.URL, "/") || strings.HasPrefix(link.URL, "//")) {
		// It is appended to files_url as it is: anything else, such as
		// "@other.example/", would lead users to another server.
		err = errLink
	}
	// What is before is where the hub was asked. Users may reach it elsewhere.
	if at := strings.Index(link.URL, linkPath); err == nil && at > 0 {
		link.URL = link.URL[at:]
	}
	return link.URL, err
}

func viewPath(ref comfyui.FileRef) string {
	return "/view?" + url.Values{"filename": {ref.Filename}, "subfolder": {ref.Subfolder}, "type": {ref.Type}}.Encode()
}
