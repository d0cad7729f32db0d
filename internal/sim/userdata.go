package sim

import (
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// userFile returns the file named by a route parameter. If the file is not
// allowed, it sends the answer itself.
func (u *userRoutes) userFile(w http.ResponseWriter, r *http.Request, param string) (root, full string, ok bool) {
	root, ok = u.userRoot(r)
	if !ok {
		answerInternalError(w, r)
		return "", "", false
	}
	full, inside := within(root, r.PathValue(param))
	if !inside {
		answerEmpty(w, http.StatusForbidden)
		return "", "", false
	}
	return root, full, true
}

func (u *userRoutes) getUserdata(w http.ResponseWriter, r *http.Request) {
	_, full, ok := u.userFile(w, r, "file")
	if !ok {
		return
	}
	if info, err := os.Stat(full); err != nil || !info.Mode().IsRegular() {
		answerEmpty(w, http.StatusNotFound)
		return
	}
	if u.feat.forcedDownload {
		w.Header().Set("Content-Disposition", "attachment")
		w.Header().Set("X-Content-Type-Options", "nosniff")
	}
	serveFile(w, r, full, mimeByName(full))
}

// flagOn parses a parameter that counts if it is true.
func flagOn(r *http.Request, name string) bool { return strings.EqualFold(query(r).Get(name), "true") }

// keeps reports whether a file must not be overwritten.
func keeps(r *http.Request, full string) bool {
	_, err := os.Stat(full)
	return query(r).Get("overwrite") == "false" && err == nil
}

func (u *userRoutes) postUserdata(w http.ResponseWriter, r *http.Request) {
	root, full, ok := u.userFile(w, r, "file")
	if !ok {
		return
	}
	if keeps(r, full) {
		answerText(w, http.StatusConflict, "File already exists")
		return
	}
	body, ok := u.readBody(w, r)
	if !ok {
		return
	}
	if os.MkdirAll(filepath.Dir(full), 0o755) != nil || os.WriteFile(full, body, 0o644) != nil {
		answerInternalError(w, r)
		return
	}
	u.answerUserFile(w, r, root, full)
}

func (u *userRoutes) moveUserdata(w http.ResponseWriter, r *http.Request) {
	root, from, ok := u.userFile(w, r, "file")
	if !ok {
		return
	}
	if _, err := os.Stat(from); err != nil {
		answerEmpty(w, http.StatusNotFound)
		return
	}
	_, to, ok := u.userFile(w, r, "dest")
	if !ok {
		return
	}
	if keeps(r, to) {
		answerText(w, http.StatusConflict, "File already exists")
		return
	}
	if os.MkdirAll(filepath.Dir(to), 0o755) != nil || os.Rename(from, to) != nil {
		answerInternalError(w, r)
		return
	}
	u.answerUserFile(w, r, root, to)
}

func (u *userRoutes) deleteUserdata(w http.ResponseWriter, r *http.Request) {
	_, full, ok := u.userFile(w, r, "file")
	if !ok {
		return
	}
	if os.Remove(full) != nil {
		answerEmpty(w, http.StatusNotFound)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// answerUserFile answers with the path of a stored file or, if requested, with
// everything about it.
func (u *userRoutes) answerUserFile(w http.ResponseWriter, r *http.Request, root, full string) {
	if flagOn(r, "full_info") {
		answerJSON(w, http.StatusOK, u.fileInfo(root, full))
		return
	}
	answerJSON(w, http.StatusOK, value(relative(root, full)))
}

func relative(root, full string) string {
	rel, err := filepath.Rel(root, full)
	if err != nil {
		return full
	}
	return filepath.ToSlash(rel)
}

func (u *userRoutes) fileInfo(root, full string) *pyjson.Object {
	info, err := os.Stat(full)
	if err != nil {
		return dict("path", relative(root, full))
	}
	var at any = seconds(info.ModTime())
	if u.feat.integerTimes {
		at = info.ModTime().UnixMilli()
	}
	return dict("path", relative(root, full), "size", info.Size(), "modified", at, "created", at)
}

func seconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }

// listUserdata lists the files of one folder.
func (u *userRoutes) listUserdata(w http.ResponseWriter, r *http.Request) {
	root, ok := u.userRoot(r)
	if !ok {
		answerInternalError(w, r)
		return
	}
	dir := query(r).Get("dir")
	if dir == "" {
		answerText(w, http.StatusBadRequest, "Directory not provided")
		return
	}
	full, inside := within(root, dir)
	if !inside {
		answerText(w, http.StatusForbidden, "Invalid directory")
		return
	}
	if info, err := os.Stat(full); err != nil || !info.IsDir() {
		answerText(w, http.StatusNotFound, "Directory not found")
		return
	}
	out := pyjson.Array{}
	for _, file := range filesIn(full, flagOn(r, "recurse")) {
		rel := relative(full, file)
		switch {
		case flagOn(r, "full_info"):
			out = append(out, u.fileInfo(full, file))
		case flagOn(r, "split"):
			out = append(out, pyjson.Strings(append([]string{rel}, strings.Split(rel, "/")...)))
		default:
			out = append(out, pyjson.String(rel))
		}
	}
	answerJSON(w, http.StatusOK, out)
}

func filesIn(dir string, recurse bool) []string {
	var files []string
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil // unreadable files are not listed
		case d.IsDir() && path != dir && !recurse:
			return fs.SkipDir
		case d.Type().IsRegular() && !strings.HasPrefix(d.Name(), "."):
			files = append(files, path)
		}
		return nil
	})
	slices.Sort(files)
	return files
}

// walkUserdata lists everything below a folder, directories first.
func (u *userRoutes) walkUserdata(w http.ResponseWriter, r *http.Request) {
	root, ok := u.userRoot(r)
	if !ok {
		answerEmpty(w, http.StatusForbidden)
		return
	}
	start, inside := within(root, query(r).Get("path"))
	if !inside {
		answerText(w, http.StatusBadRequest, "Invalid path requested")
		return
	}
	if info, err := os.Stat(start); err != nil || !info.IsDir() {
		if start == root {
			answerJSON(w, http.StatusOK, list())
			return
		}
		answerText(w, http.StatusNotFound, "Requested path not found")
		return
	}
	out := pyjson.Array{}
	dirs := []string{start}
	for len(dirs) > 0 {
		dir := dirs[0]
		dirs = dirs[1:]
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if e.IsDir() {
				full := filepath.Join(dir, e.Name())
				dirs = append(dirs, full)
				out = append(out, dict("name", e.Name(), "path", relative(root, full), "type", "directory"))
			}
		}
		for _, e := range entries {
			info, err := e.Info()
			if err != nil || e.IsDir() {
				continue
			}
			out = append(out, dict("name", e.Name(), "path", relative(root, filepath.Join(dir, e.Name())), "type", "file",
				"size", info.Size(), "modified", seconds(info.ModTime())))
		}
	}
	answerJSON(w, http.StatusOK, out)
}
