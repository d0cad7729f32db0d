package comfy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/comfyhub/comfyhub/internal/aiohttp"
	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/webui"
)

// fromInstance are the folders that are no part of the web interface's own
// build: they belong to the packs and packages that instances have installed.
var fromInstance = [...]string{"extensions", "templates", "docs", "api", "internal"}

// serveFrontend answers with a file of the hub's own copy of the web interface
// and reports whether there is one. Others are left to the primary.
func (c *Room) serveFrontend(w http.ResponseWriter, r *http.Request, asked aiohttp.Path) bool {
	folder := c.hub().Settings.Frontend
	if folder == "" || !api.IsRead(r) || upgrades(r) {
		return false
	}
	name := strings.TrimPrefix(asked.Decoded(), "/")
	index := name == "" || asked.String() == "/api/"
	if index {
		name = "index.html"
	} else if first, _, _ := strings.Cut(name, "/"); slices.Contains(fromInstance[:], first) && c.hub().Instances.Primary() != nil {
		return false // while there is no instance those of the build itself are better than none
	}
	// A Root, so that no name and no link leads out of the folder.
	root, err := os.OpenRoot(folder)
	if err != nil {
		c.Log().Error("the web interface's folder cannot be read", "error", err)
		return false
	}
	defer root.Close()
	file, err := root.Open(name)
	if err != nil {
		return false
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	api.AsPage(w)
	local := webui.Local{
		Path: path.Join(folder, name), Type: frontendType(name), Modified: info.ModTime(), Size: info.Size(),
		Stamp: fmt.Sprintf("%x-%x", info.ModTime().UnixNano(), info.Size()),
	}
	describe := func(header http.Header) { c.describePage(header, asked.Decoded(), name, index) }
	kept, err := c.hub().WebUI.Local(local, func() ([]byte, error) { return io.ReadAll(io.LimitReader(file, local.Size+1)) })
	if kept != nil {
		err = kept.Serve(w, r, c.Log(), describe)
	} else if err == nil {
		err = files.ServeContent(w, r, files.Content{
			ETag: strconv.Quote(local.Stamp), Modified: local.Modified, Size: local.Size, Logger: c.Log(), Describe: describe,
			Open: func(_ context.Context, offset, length int64) (io.ReadCloser, error) {
				return section{io.NewSectionReader(file, offset, length)}, nil
			},
		})
	}
	if err != nil {
		c.Fail(w, r, errors.Join(errors.New("hub: frontend"), err))
	}
	return true
}

// section is a part of a file that somebody else closes.
type section struct{ *io.SectionReader }

func (section) Close() error { return nil }

func frontendType(name string) string {
	if path.Ext(name) == ".js" {
		return "application/javascript" // ComfyUI says so of its own pages only
	}
	return files.ContentType(name)
}

// describePage sets the headers with which ComfyUI keeps browsers from showing
// an old web interface after an update.
func (c *Room) describePage(header http.Header, asked, name string, index bool) {
	header.Set("Content-Type", frontendType(name))
	if index {
		control := "no-cache"
		if c.storesNothing() {
			control = "no-store, must-revalidate"
		}
		header.Set("Cache-Control", control)
		header.Set("Pragma", "no-cache")
		header.Set("Expires", "0")
		return
	}
	if control := c.cacheControl(asked); control != "" {
		header.Set("Cache-Control", control)
	}
}

// cacheControl is the header that ComfyUI gives to a path, "" for none.
func (c *Room) cacheControl(p string) string {
	base := path.Base(p)
	switch ext := path.Ext(p); {
	case ext == ".js", ext == ".css", strings.HasPrefix(base, "index") && ext == ".json":
		if c.storesNothing() {
			return "no-store"
		}
		return "no-cache"
	case slices.Contains([]string{".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".gif", ".tif", ".tiff", ".webp"}, strings.ToLower(ext)):
		return "public, max-age=86400"
	}
	return ""
}

// storesNothing is the rule since 0.18.0; the hub follows it too while it does
// not know what it emulates.
func (c *Room) storesNothing() bool {
	version := c.hub().Instances.Version()
	return !version.Known() || version.AtLeast(0, 18, 0)
}
