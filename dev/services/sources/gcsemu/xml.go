package main

import (
	"bytes"
	"crypto/md5"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// xmlAPI answers the XML API by asking the JSON API, so that preconditions keep that server's atomicity.
type xmlAPI struct {
	json http.Handler
	host string

	// A conditional delete looks and then deletes: nobody may write in between.
	writes sync.RWMutex

	mu      sync.Mutex
	uploads map[string]*upload
	started int
}

// upload is a multipart upload that is not complete.
type upload struct {
	bucket, object string
	begun          time.Time
	header         http.Header
	parts          map[int]part
}

type part struct {
	tag  string
	body []byte
}

// object is what the JSON API says of one.
type object struct {
	Name, Generation, Etag, Updated, Md5Hash, Crc32c, Size, ContentType string
}

func newXMLAPI(json http.Handler, host string) *xmlAPI {
	return &xmlAPI{json: json, host: host, uploads: map[string]*upload{}}
}

func (x *xmlAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.EscapedPath()
	for _, prefix := range []string{"/storage/v1", "/upload/", "/download/", "/_internal/", "/batch/"} {
		if strings.HasPrefix(path, prefix) {
			x.serveJSON(w, r, path)
			return
		}
	}
	rawBucket, rawKey, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	bucket, err := url.PathUnescape(rawBucket)
	key, err2 := url.PathUnescape(rawKey)
	query := r.URL.Query()
	switch {
	case err != nil || err2 != nil || bucket == "":
		refuse(w, 400, "InvalidURI")
	case key == "" && r.Method == http.MethodGet && query.Has("uploads"):
		x.listUploads(w, bucket, query.Get("prefix"))
	case key == "" && r.Method == http.MethodGet:
		x.list(w, bucket, query)
	case key == "":
		refuse(w, 405, "MethodNotAllowed")
	case query.Has("uploads") && r.Method == http.MethodPost:
		x.begin(w, bucket, key, r.Header)
	case query.Has("uploadId"):
		x.serveUpload(w, r, bucket, key, query)
	default:
		x.serveObject(w, r, bucket, key)
	}
}

// serveJSON passes on, except where the server behind ignores conditions: those of deletes and of rewrites.
func (x *xmlAPI) serveJSON(w http.ResponseWriter, r *http.Request, path string) {
	if r.Method == http.MethodPost && strings.Contains(path, "/rewriteTo/b/") {
		x.rewrite(w, path, r.URL.Query())
		return
	}
	wanted := r.URL.Query().Get("ifGenerationMatch")
	if r.Method != http.MethodDelete || wanted == "" || !strings.Contains(path, "/o/") {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			x.writes.RLock()
			defer x.writes.RUnlock()
		}
		x.json.ServeHTTP(w, r)
		return
	}
	bucket, key, err := names(strings.TrimPrefix(path, "/storage/v1/b/"))
	if err != nil {
		refuseJSON(w, 400, "invalid")
		return
	}
	x.writes.Lock()
	defer x.writes.Unlock()
	if found, code := x.stat(bucket, key); code == 200 && found.Generation != wanted {
		refuseJSON(w, 412, "conditionNotMet")
		return
	}
	x.json.ServeHTTP(w, r)
}

// rewrite copies by way of put, whose conditions are atomic.
func (x *xmlAPI) rewrite(w http.ResponseWriter, path string, query url.Values) {
	from, to, _ := strings.Cut(strings.TrimPrefix(path, "/storage/v1/b/"), "/rewriteTo/b/")
	fromBucket, fromKey, err := names(from)
	bucket, key, err2 := names(to)
	if err != nil || err2 != nil {
		refuseJSON(w, 400, "invalid")
		return
	}
	found, code := x.stat(fromBucket, fromKey)
	if code != 200 {
		refuseJSON(w, 404, "notFound")
		return
	}
	got := x.ask(http.MethodGet, objectPath(fromBucket, fromKey), url.Values{"alt": {"media"}}, nil, nil)
	wanted := query.Get("ifSourceGenerationMatch")
	isReplaced := got.Header().Get("X-Goog-Generation") != found.Generation
	if isReplaced || (wanted != "" && wanted != found.Generation) {
		refuseJSON(w, 412, "conditionNotMet")
		return
	}
	header := http.Header{"Content-Type": {found.ContentType}}
	if generation := query.Get("ifGenerationMatch"); generation != "" {
		header.Set("X-Goog-If-Generation-Match", generation)
	}
	answer := httptest.NewRecorder()
	if !x.put(answer, bucket, key, header, got.Body.Bytes()) {
		refuseJSON(w, answer.Code, "conditionNotMet")
		return
	}
	size := strconv.Itoa(got.Body.Len())
	written := map[string]string{
		"bucket":     bucket,
		"name":       key,
		"size":       size,
		"crc32c":     crc32c(got.Body.Bytes()),
		"generation": answer.Header().Get("X-Goog-Generation"),
		"etag":       answer.Header().Get("ETag"),
	}
	said := map[string]any{
		"kind": "storage#rewriteResponse", "done": true, "objectSize": size, "totalBytesRewritten": size, "resource": written,
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(said); err != nil {
		panic(http.ErrAbortHandler) // the beginning is sent: only a cut tells the client
	}
}

func (x *xmlAPI) serveObject(w http.ResponseWriter, r *http.Request, bucket, key string) {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		x.get(w, r, bucket, key)
	case http.MethodPut:
		if source := r.Header.Get("X-Goog-Copy-Source"); source != "" {
			x.copy(w, r, source, bucket, key)
		} else if body, err := io.ReadAll(r.Body); err != nil {
			refuse(w, 400, "IncompleteBody")
		} else {
			x.put(w, bucket, key, r.Header, body)
		}
	case http.MethodDelete:
		x.remove(w, bucket, key, r.Header.Get("X-Goog-If-Generation-Match"))
	default:
		refuse(w, 405, "MethodNotAllowed")
	}
}

// put uploads the whole content; false if it was refused, and then that is the answer.
func (x *xmlAPI) put(w http.ResponseWriter, bucket, key string, header http.Header, body []byte) bool {
	if !isIntact(header, body) {
		refuse(w, 400, "BadDigest")
		return false
	}
	about := map[string]any{"name": key}
	custom := map[string]string{}
	for name, values := range header {
		if short, ok := strings.CutPrefix(strings.ToLower(name), "x-goog-meta-"); ok {
			custom[short] = values[0]
		}
	}
	if len(custom) > 0 {
		about["metadata"] = custom
	}
	for name, field := range map[string]string{
		"Content-Type":        "contentType",
		"Cache-Control":       "cacheControl",
		"Content-Encoding":    "contentEncoding",
		"Content-Disposition": "contentDisposition",
		"Content-Language":    "contentLanguage",
	} {
		if value := header.Get(name); value != "" {
			about[field] = value
		}
	}
	described, err := json.Marshal(about)
	if err != nil {
		refuse(w, 400, "InvalidArgument")
		return false
	}
	kind := header.Get("Content-Type")
	if kind == "" {
		kind = "application/octet-stream"
	}
	const border = "gcsemu-part-4f0c2f6b"
	var related bytes.Buffer
	fmt.Fprintf(&related, "--%s\r\nContent-Type: application/json\r\n\r\n%s\r\n", border, described)
	fmt.Fprintf(&related, "--%s\r\nContent-Type: %s\r\n\r\n", border, kind)
	related.Write(body)
	fmt.Fprintf(&related, "\r\n--%s--\r\n", border)
	query := url.Values{"uploadType": {"multipart"}, "name": {key}}
	if generation := header.Get("X-Goog-If-Generation-Match"); generation != "" {
		query.Set("ifGenerationMatch", generation)
	}
	path := "/upload/storage/v1/b/" + url.PathEscape(bucket) + "/o"
	wrapped := http.Header{"Content-Type": {"multipart/related; boundary=" + border}}
	x.writes.RLock()
	answer := x.ask(http.MethodPost, path, query, wrapped, related.Bytes())
	x.writes.RUnlock()
	switch {
	case answer.Code == 412:
		refuse(w, 412, "PreconditionFailed")
	case answer.Code == 404:
		refuse(w, 404, "NoSuchBucket")
	case answer.Code >= 300:
		refuse(w, answer.Code, strings.TrimSpace(answer.Body.String()))
	default:
		var written object
		if err := json.Unmarshal(answer.Body.Bytes(), &written); err != nil {
			refuse(w, 500, err.Error())
			return false
		}
		describe(w, written)
		return true
	}
	return false
}

// get reads what is asked for and no more, all of one generation.
func (x *xmlAPI) get(w http.ResponseWriter, r *http.Request, bucket, key string) {
	for try := 0; try < 5; try++ {
		found, code := x.stat(bucket, key)
		size, err := strconv.ParseInt(found.Size, 10, 64)
		if code != 200 || err != nil {
			refuse(w, 404, "NoSuchKey")
			return
		}
		if wanted := r.Header.Get("X-Goog-If-Generation-Match"); wanted != "" && wanted != found.Generation {
			refuse(w, 412, "PreconditionFailed")
			return
		}
		start, end := window(r.Header.Get("Range"), size)
		var content []byte
		if r.Method == http.MethodGet && end > start {
			header := http.Header{"Range": {fmt.Sprintf("bytes=%d-%d", start, end-1)}}
			answer := x.ask(http.MethodGet, objectPath(bucket, key), url.Values{"alt": {"media"}}, header, nil)
			content = answer.Body.Bytes()
			isSame := answer.Header().Get("X-Goog-Generation") == found.Generation
			if !isSame || int64(len(content)) != end-start {
				continue // it was replaced or removed meanwhile
			}
		}
		describe(w, found)
		w.Header().Set("Content-Type", found.ContentType)
		updated, err := time.Parse(time.RFC3339Nano, found.Updated)
		if err != nil {
			updated = time.Time{}
		}
		// Range, If-Match, If-None-Match; 206, 304, 412, 416.
		http.ServeContent(w, r, "", updated, &view{content: content, start: start, size: size})
		return
	}
	refuse(w, 503, "SlowDown")
}

func (x *xmlAPI) copy(w http.ResponseWriter, r *http.Request, source, bucket, key string) {
	unescaped, err := url.PathUnescape(strings.TrimPrefix(source, "/"))
	if err != nil {
		refuse(w, 400, "InvalidURI")
		return
	}
	fromBucket, fromKey, _ := strings.Cut(unescaped, "/")
	found := x.ask(http.MethodGet, objectPath(fromBucket, fromKey), url.Values{"alt": {"media"}}, nil, nil)
	if found.Code != 200 {
		refuse(w, 404, "NoSuchKey")
		return
	}
	header := r.Header.Clone()
	header.Set("Content-Type", found.Header().Get("Content-Type"))
	if x.put(w, bucket, key, header, found.Body.Bytes()) {
		io.WriteString(w, xml.Header+"<CopyObjectResult/>")
	}
}

func (x *xmlAPI) remove(w http.ResponseWriter, bucket, key, generation string) {
	x.writes.Lock()
	defer x.writes.Unlock()
	if generation != "" {
		if found, code := x.stat(bucket, key); code == 200 && found.Generation != generation {
			refuse(w, 412, "PreconditionFailed")
			return
		}
	}
	if answer := x.ask(http.MethodDelete, objectPath(bucket, key), nil, nil, nil); answer.Code == 404 {
		refuse(w, 404, "NoSuchKey")
		return
	}
	w.WriteHeader(204)
}

func (x *xmlAPI) list(w http.ResponseWriter, bucket string, query url.Values) {
	asked := url.Values{}
	for from, to := range map[string]string{
		"prefix":             "prefix",
		"delimiter":          "delimiter",
		"max-keys":           "maxResults",
		"continuation-token": "pageToken",
		"start-after":        "startOffset",
	} {
		if value := query.Get(from); value != "" {
			asked.Set(to, value)
		}
	}
	answer := x.ask(http.MethodGet, "/storage/v1/b/"+url.PathEscape(bucket)+"/o", asked, nil, nil)
	if answer.Code != 200 {
		refuse(w, answer.Code, "NoSuchBucket")
		return
	}
	var found struct {
		Items         []object
		Prefixes      []string
		NextPageToken string
	}
	if err := json.Unmarshal(answer.Body.Bytes(), &found); err != nil {
		refuse(w, 500, err.Error())
		return
	}
	type contents struct{ Key, Generation, LastModified, ETag, Size string }
	type prefix struct{ Prefix string }
	page := struct {
		XMLName               xml.Name `xml:"http://doc.s3.amazonaws.com/2006-03-01 ListBucketResult"`
		Name, Prefix          string
		KeyCount              int
		IsTruncated           bool
		NextContinuationToken string `xml:",omitempty"`
		Contents              []contents
		CommonPrefixes        []prefix
	}{Name: bucket, Prefix: query.Get("prefix"), NextContinuationToken: found.NextPageToken}
	page.IsTruncated = found.NextPageToken != ""
	for _, one := range found.Items {
		if after := query.Get("start-after"); after != "" && one.Name <= after {
			continue // startOffset includes the name itself
		}
		page.Contents = append(page.Contents, contents{one.Name, one.Generation, one.Updated, quoted(one.Etag), one.Size})
	}
	for _, one := range found.Prefixes {
		page.CommonPrefixes = append(page.CommonPrefixes, prefix{one})
	}
	page.KeyCount = len(page.Contents) + len(page.CommonPrefixes)
	w.Header().Set("Content-Type", "application/xml; charset=UTF-8")
	io.WriteString(w, xml.Header)
	if err := xml.NewEncoder(w).Encode(page); err != nil {
		panic(http.ErrAbortHandler) // the beginning is sent: only a cut tells the client
	}
}

func (x *xmlAPI) stat(bucket, key string) (object, int) {
	answer := x.ask(http.MethodGet, objectPath(bucket, key), nil, nil, nil)
	var found object
	if err := json.Unmarshal(answer.Body.Bytes(), &found); err != nil && answer.Code == 200 {
		return found, 500
	}
	return found, answer.Code
}

// ask puts a request to the JSON API in this process.
func (x *xmlAPI) ask(method, path string, query url.Values, header http.Header, body []byte) *httptest.ResponseRecorder {
	request := httptest.NewRequest(method, "http://"+x.host+path+"?"+query.Encode(), bytes.NewReader(body))
	for name, values := range header {
		request.Header[name] = values
	}
	answer := httptest.NewRecorder()
	x.json.ServeHTTP(answer, request)
	return answer
}

func objectPath(bucket, key string) string {
	return "/storage/v1/b/" + url.PathEscape(bucket) + "/o/" + url.PathEscape(key)
}

// names takes `bucket/o/key` apart.
func names(path string) (string, string, error) {
	rawBucket, rawKey, _ := strings.Cut(path, "/o/")
	bucket, err := url.PathUnescape(rawBucket)
	if err != nil {
		return "", "", err
	}
	key, err := url.PathUnescape(rawKey)
	return bucket, key, err
}

func describe(w http.ResponseWriter, found object) {
	w.Header().Set("ETag", quoted(found.Etag))
	w.Header().Set("X-Goog-Generation", found.Generation)
	w.Header().Set("X-Goog-Hash", "crc32c="+found.Crc32c+",md5="+found.Md5Hash)
}

func quoted(tag string) string { return `"` + strings.Trim(tag, `"`) + `"` }

func refuse(w http.ResponseWriter, code int, name string) {
	var said bytes.Buffer
	if err := xml.EscapeText(&said, []byte(name)); err != nil {
		said.Reset()
	}
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(code)
	fmt.Fprintf(w, "%s<Error><Code>%s</Code><Message>%s</Message></Error>", xml.Header, said.String(), said.String())
}

func refuseJSON(w http.ResponseWriter, code int, reason string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"error":{"code":%d,"message":"%s","errors":[{"reason":"%s"}]}}`, code, reason, reason)
}

func crc32c(body []byte) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc32.Checksum(body, castagnoli)))
}

// isIntact compares a body with the checksums that came with it; without any it is.
func isIntact(header http.Header, body []byte) bool {
	sums := map[string]string{"md5": header.Get("Content-MD5")}
	for _, line := range header.Values("X-Goog-Hash") {
		for _, one := range strings.Split(line, ",") {
			if name, value, ok := strings.Cut(strings.TrimSpace(one), "="); ok {
				sums[name] = value
			}
		}
	}
	hash := md5.Sum(body)
	for name, got := range map[string]string{"crc32c": crc32c(body), "md5": base64.StdEncoding.EncodeToString(hash[:])} {
		if want := sums[name]; want != "" && want != got {
			return false
		}
	}
	return true
}

// window is the part of an object that a Range header asks for: exact for `bytes=a-b` and `bytes=a-`, else all of it.
func window(header string, size int64) (int64, int64) {
	from, to, ok := strings.Cut(strings.TrimPrefix(header, "bytes="), "-")
	start, err := strconv.ParseInt(from, 10, 64)
	if !ok || err != nil || start < 0 || start >= size || !strings.HasPrefix(header, "bytes=") {
		return 0, size
	}
	if to == "" {
		return start, size
	}
	last, err := strconv.ParseInt(to, 10, 64)
	if err != nil || last < start {
		return 0, size
	}
	return start, min(last+1, size)
}

// view is an object of which only a window is in memory.
type view struct {
	content         []byte
	start, size, at int64
}

func (v *view) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekStart:
		v.at = offset
	case io.SeekCurrent:
		v.at += offset
	case io.SeekEnd:
		v.at = v.size + offset
	}
	return v.at, nil
}

func (v *view) Read(p []byte) (int, error) {
	at := v.at - v.start
	if at < 0 || at >= int64(len(v.content)) {
		return 0, io.EOF
	}
	n := copy(p, v.content[at:])
	v.at += int64(n)
	return n, nil
}
