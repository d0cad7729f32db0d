package comfy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/api"
	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/intake"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/userdata"
)

// userCSS is the one user file that pages include; all others are downloads.
const userCSS userdata.Path = "user.css"

// userFiles answers the routes of users' own files: workflows, mostly.
type userFiles struct{ userFolders }

// getUserdata answers GET /userdata: the files of one folder.
func (u userFiles) getUserdata(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	q := api.QueryOf(r)
	if q.Get("dir") == "" {
		api.WriteText(w, http.StatusBadRequest, "Directory not provided")
		return
	}
	folder, ok := u.knownFolder(w, r, a)
	if !ok {
		return
	}
	dir, err := userdata.ParsePath(q.Get("dir"))
	if errors.Is(err, userdata.ErrOutside) {
		api.WriteText(w, http.StatusForbidden, "Invalid directory")
		return
	}
	var list []userdata.File
	if err == nil {
		list, err = folder.List(r.Context(), dir, isTrue(q.Get("recurse")))
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, userdata.ErrName) {
		api.WriteText(w, http.StatusNotFound, "Directory not found")
		return
	}
	if err != nil {
		u.Fail(w, r, err)
		return
	}
	out := pyjson.Array{}
	for _, f := range list {
		switch {
		case isTrue(q.Get("full_info")):
			out = append(out, u.fileInfo(f))
		case isTrue(q.Get("split")):
			out = append(out, pyjson.Strings(append([]string{string(f.Path)}, strings.Split(string(f.Path), "/")...)))
		default:
			out = append(out, pyjson.String(f.Path))
		}
	}
	api.WriteValue(w, out)
}

// getUserdataV2 answers GET /v2/userdata: all that lies below a folder.
func (u userFiles) getUserdataV2(w http.ResponseWriter, r *http.Request, a api.Requester, _ []string) {
	folder, ok, err := u.userFolder(r, a)
	if err != nil {
		u.Fail(w, r, err)
		return
	}
	if !ok {
		api.WriteText(w, http.StatusForbidden, "Invalid user specified in request")
		return
	}
	dir, err := userdata.ParsePath(api.QueryOf(r).Get("path"))
	if errors.Is(err, userdata.ErrOutside) {
		api.WriteText(w, http.StatusBadRequest, "Invalid path requested")
		return
	}
	var entries []userdata.Entry
	if err == nil {
		entries, err = folder.Walk(r.Context(), dir)
		if errors.Is(err, userdata.ErrName) {
			api.WriteText(w, http.StatusBadRequest, "Requested path is not a directory")
			return
		}
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, userdata.ErrName) {
		api.WriteText(w, http.StatusNotFound, "Requested path not found")
		return
	}
	if err != nil {
		u.Fail(w, r, err)
		return
	}
	out := pyjson.Array{}
	for _, e := range entries {
		o := pyjson.NewObject(
			pyjson.Member{Key: "name", Value: pyjson.String(e.Path.Name())},
			pyjson.Member{Key: "path", Value: pyjson.String(e.Path)},
			pyjson.Member{Key: "type", Value: pyjson.String("directory")},
		)
		if !e.Directory {
			o.Set("type", pyjson.String("file"))
			o.Set("size", pyjson.Int(e.Size))
			o.Set("modified", floatSeconds(e.Modified))
		}
		out = append(out, o)
	}
	api.WriteValue(w, out)
}

// getUserfile answers GET /userdata/{file}.
func (u userFiles) getUserfile(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
	folder, p, ok := u.userPath(w, r, a, path[0])
	if !ok {
		return
	}
	f, err := folder.Stat(r.Context(), p)
	if err == nil {
		if err = u.serve(w, r, folder, f); errors.Is(err, fs.ErrNotExist) { // it may just have been replaced
			if f, err = folder.Stat(r.Context(), p); err == nil {
				err = u.serve(w, r, folder, f)
			}
		}
	}
	if err != nil {
		u.userFault(w, r, err)
	}
}

// serve sends a file as it was described. An error means that nothing was answered yet; it is
// fs.ErrNotExist if another one has taken its place.
func (u userFiles) serve(w http.ResponseWriter, r *http.Request, folder userdata.Folder, f userdata.File) error {
	return files.ServeContent(w, r, files.Content{
		ETag:     fmt.Sprintf(`"%x-%x"`, f.Modified.UnixNano(), f.Size),
		Modified: f.Modified, Size: f.Size, Logger: u.Log(),
		Describe: func(header http.Header) { describeUserfile(header, f.Path) },
		Open: func(ctx context.Context, offset, length int64) (io.ReadCloser, error) {
			return folder.Open(ctx, f, offset, length)
		},
	})
}

// describeUserfile sets what says how a browser may use the file, as ComfyUI
// does since 0.28.0 and the hub whatever its servers are: a user's file is never
// shown as a page, as a script in it would act as whoever opens it.
func describeUserfile(header http.Header, p userdata.Path) {
	typ, disposition := files.ContentType(p.Name()), "attachment"
	switch {
	case p == userCSS:
		typ, disposition = "text/css", "inline"
	case files.Active(typ):
		typ = "application/octet-stream"
	}
	header.Set("Content-Disposition", disposition)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Type", typ)
}

// postUserfile answers POST /userdata/{file}: the body is the file.
func (u userFiles) postUserfile(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
	folder, p, ok := u.userPath(w, r, a, path[0])
	if !ok {
		return
	}
	body, ok := u.Receive(w, r, a, intake.Class{Limit: u.hub().Settings.MaxUpload})
	if !ok {
		return
	}
	defer body.Close()
	f, err := folder.Write(r.Context(), p, body.Reader(), mayReplace(r))
	if err != nil {
		u.userFault(w, r, err)
		return
	}
	u.writeUserfile(w, r, f)
}

// postUserfileMove answers POST /userdata/{file}/move/{dest}.
func (u userFiles) postUserfileMove(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
	folder, from, ok := u.userPath(w, r, a, path[0])
	if !ok {
		return
	}
	_, to, ok := u.userPath(w, r, a, path[1])
	if !ok {
		return
	}
	f, err := folder.Move(r.Context(), from, to, mayReplace(r))
	if err != nil {
		u.userFault(w, r, err)
		return
	}
	u.writeUserfile(w, r, f)
}

func (u userFiles) deleteUserfile(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
	folder, p, ok := u.userPath(w, r, a, path[0])
	if !ok {
		return
	}
	if err := folder.Delete(r.Context(), p); err != nil {
		u.userFault(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// atPath answers the routes of a file whose slashes some proxy has decoded: the file is the
// rest of the path. As in ComfyUI there is none with braces.
func (u userFiles) atPath(answer api.Handler) api.Handler {
	return func(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
		if slices.Contains(strings.Split(path[0], "/"), "") || strings.ContainsAny(path[0], "{}") {
			api.WriteNotFound(w, r)
			return
		}
		answer(w, r, a, path)
	}
}

// postAtPath answers such a POST: a file, or a move. A move has no body.
func (u userFiles) postAtPath(w http.ResponseWriter, r *http.Request, a api.Requester, path []string) {
	from, to, moves := strings.Cut(path[0], "/move/")
	switch {
	case !moves || r.ContentLength != 0:
		u.postUserfile(w, r, a, path)
	case strings.Contains(to+"/", "/move/") || strings.HasPrefix(to, "move/"):
		api.WriteNotFound(w, r) // nobody knows which
	default:
		u.postUserfileMove(w, r, a, []string{from, to})
	}
}

// mayReplace reads a flag that only the very word "false" unsets.
func mayReplace(r *http.Request) bool { return api.QueryOf(r).Get("overwrite") != "false" }

// writeUserfile tells the path of a stored file or, if asked, all about it.
func (u userFiles) writeUserfile(w http.ResponseWriter, r *http.Request, f userdata.File) {
	if isTrue(api.QueryOf(r).Get("full_info")) {
		api.WriteValue(w, u.fileInfo(f))
		return
	}
	api.WriteValue(w, pyjson.String(f.Path))
}

// fileInfo describes a file; its times are seconds, since 0.21.0 milliseconds.
// The storage knows one time only, so created is that of the last change.
func (u userFiles) fileInfo(f userdata.File) *pyjson.Object {
	at := pyjson.Value(floatSeconds(f.Modified))
	if u.hub().Instances.Version().AtLeast(0, 21, 0) {
		at = pyjson.Int(f.Modified.UnixMilli())
	}
	return pyjson.NewObject(
		pyjson.Member{Key: "path", Value: pyjson.String(f.Path)},
		pyjson.Member{Key: "size", Value: pyjson.Int(f.Size)},
		pyjson.Member{Key: "modified", Value: at},
		pyjson.Member{Key: "created", Value: at},
	)
}

func floatSeconds(t time.Time) pyjson.Number { return pyjson.Float(float64(t.UnixNano()) / 1e9) }

// knownFolder is the folder of the asking user; it answers by itself if that
// is nobody.
func (u userFiles) knownFolder(w http.ResponseWriter, r *http.Request, a api.Requester) (userdata.Folder, bool) {
	folder, ok, err := u.userFolder(r, a)
	if err != nil {
		u.Fail(w, r, err)
		return folder, false
	}
	if !ok {
		api.WriteInternalError(w, r)
	}
	return folder, ok
}

// userPath is the place that a route names; it answers by itself if that is
// none.
func (u userFiles) userPath(w http.ResponseWriter, r *http.Request, a api.Requester, raw string) (userdata.Folder, userdata.Path, bool) {
	folder, ok := u.knownFolder(w, r, a)
	if !ok {
		return folder, "", false
	}
	p, err := userdata.ParsePath(raw)
	if err != nil {
		u.userFault(w, r, err)
		return folder, "", false
	}
	return folder, p, true
}

// userFault answers what went wrong with a user's file.
func (u userFiles) userFault(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, userdata.ErrOutside):
		api.WriteEmpty(w, http.StatusForbidden)
	case errors.Is(err, fs.ErrNotExist):
		api.WriteEmpty(w, http.StatusNotFound)
	case errors.Is(err, userdata.ErrFull):
		u.refuseUserdata(w, err)
	case errors.Is(err, userdata.ErrExists):
		api.WriteText(w, http.StatusConflict, "File already exists")
	case errors.Is(err, userdata.ErrName) && api.IsRead(r):
		api.WriteEmpty(w, http.StatusNotFound)
	case errors.Is(err, userdata.ErrName):
		api.WriteEmpty(w, http.StatusBadRequest)
	default:
		u.Fail(w, r, err)
	}
}

// isTrue reads a query flag as ComfyUI does: only "true", in any case.
func isTrue(s string) bool { return strings.EqualFold(s, "true") }
