import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.ObjectMapper;
import jakarta.servlet.DispatcherType;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.time.Duration;
import java.time.Instant;
import java.util.Base64;
import java.util.EnumSet;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.catalog.SupportsNamespaces;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;

/**
 * Iceberg's own REST servlet over JdbcCatalog, on the loopback address, with authentication and /healthz.
 *
 * <p>Environment: REST_CATALOG holds the catalog's properties as a JSON object. REST_PORT is where to listen. REST_TOKEN is
 * a bearer token that is always let in; REST_CREDENTIAL (client_id:client_secret) is exchanged for tokens at
 * /v1/oauth/tokens, which live REST_TOKEN_SECONDS and end with the process. With neither, everybody is let in.
 */
public class IcebergRest {
  private static final String TOKENS = "/v1/oauth/tokens";
  private static final String HEALTH = "/healthz";

  public static void main(String[] args) throws Exception {
    Map<String, String> env = System.getenv();
    int port = Integer.parseInt(env.getOrDefault("REST_PORT", "8181"));
    Doorkeeper door =
        new Doorkeeper(
            env.get("REST_TOKEN"),
            env.get("REST_CREDENTIAL"),
            Duration.ofSeconds(Long.parseLong(env.getOrDefault("REST_TOKEN_SECONDS", "3600"))));
    Catalog catalog = CatalogUtil.buildIcebergCatalog("rest_backend", properties(env.get("REST_CATALOG")), new Configuration());

    ServletContextHandler context = new ServletContextHandler(ServletContextHandler.NO_SESSIONS);
    context.addServlet(new ServletHolder(new Health((SupportsNamespaces) catalog)), HEALTH);
    context.addServlet(new ServletHolder(new Tokens(door)), TOKENS);
    context.addFilter(
        (request, response, chain) -> {
          HttpServletRequest asked = (HttpServletRequest) request;
          String path = asked.getServletPath() + Objects.toString(asked.getPathInfo(), "");
          if (path.equals(HEALTH) || path.equals(TOKENS) || door.lets(asked.getHeader("Authorization"))) {
            chain.doFilter(request, response);
          } else {
            HttpServletResponse answer = (HttpServletResponse) response;
            answer.setStatus(401);
            answer.setContentType("application/json");
            answer
                .getWriter()
                .write("{\"error\":{\"message\":\"Not authorized\",\"type\":\"NotAuthorizedException\",\"code\":401}}");
          }
        },
        "/*",
        EnumSet.of(DispatcherType.REQUEST));
    context.addServlet(new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(catalog))), "/*");

    Server server = new Server();
    ServerConnector connector = new ServerConnector(server);
    connector.setHost("127.0.0.1");
    connector.setPort(port);
    server.addConnector(connector);
    server.setHandler(context);
    server.setStopAtShutdown(true);
    server.start();
    server.join();
  }

  private static Map<String, String> properties(String json) throws IOException {
    Map<String, String> found = new TreeMap<>(new ObjectMapper().readValue(json, new TypeReference<Map<String, String>>() {}));
    found.putIfAbsent("catalog-impl", "org.apache.iceberg.jdbc.JdbcCatalog");
    found.putIfAbsent("jdbc.schema-version", "V1");
    return found;
  }

  /** Who is let in. */
  private static class Doorkeeper {
    private final String token;
    private final String credential;
    private final Duration lifetime;
    private final Map<String, Instant> issued = new ConcurrentHashMap<>();

    Doorkeeper(String token, String credential, Duration lifetime) {
      this.token = token;
      this.credential = credential;
      this.lifetime = lifetime;
    }

    boolean lets(String authorization) {
      if (token == null && credential == null) {
        return true;
      }
      return authorization != null
          && authorization.startsWith("Bearer ")
          && isValid(authorization.substring("Bearer ".length()));
    }

    boolean isValid(String given) {
      if (given == null) {
        return false;
      }
      Instant end = issued.get(given);
      return (token != null && same(token, given)) || (end != null && Instant.now().isBefore(end));
    }

    boolean knows(String given) {
      return credential != null && same(credential, given);
    }

    String issue() {
      Instant now = Instant.now();
      issued.values().removeIf(end -> end.isBefore(now));
      String fresh = UUID.randomUUID().toString();
      issued.put(fresh, now.plus(lifetime));
      return fresh;
    }

    private static boolean same(String want, String got) {
      return MessageDigest.isEqual(want.getBytes(StandardCharsets.UTF_8), got.getBytes(StandardCharsets.UTF_8));
    }
  }

  /** Healthy is who reaches the database. */
  private static class Health extends HttpServlet {
    private final SupportsNamespaces catalog;

    Health(SupportsNamespaces catalog) {
      this.catalog = catalog;
    }

    @Override
    protected void doGet(HttpServletRequest asked, HttpServletResponse answer) throws IOException {
      try {
        catalog.listNamespaces();
        answer.getWriter().write("ok");
      } catch (RuntimeException err) {
        answer.setStatus(503);
        answer.getWriter().write(String.valueOf(err));
      }
    }
  }

  /** RFC 6749: client credentials in the body or as HTTP Basic; RFC 8693: a valid token for a fresh one. */
  private static class Tokens extends HttpServlet {
    private final Doorkeeper door;

    Tokens(Doorkeeper door) {
      this.door = door;
    }

    @Override
    protected void doPost(HttpServletRequest asked, HttpServletResponse answer) throws IOException {
      answer.setContentType("application/json");
      boolean isExchange = Objects.toString(asked.getParameter("grant_type"), "").endsWith(":token-exchange");
      boolean isKnown = door.knows(credential(asked));
      if (isKnown || (isExchange && door.isValid(asked.getParameter("subject_token")))) {
        String kind = isExchange ? ",\"issued_token_type\":\"urn:ietf:params:oauth:token-type:access_token\"" : "";
        answer
            .getWriter()
            .write(
                String.format(
                    "{\"access_token\":\"%s\",\"token_type\":\"bearer\",\"expires_in\":%d%s}",
                    door.issue(), door.lifetime.toSeconds(), kind));
      } else {
        answer.setStatus(401);
        answer
            .getWriter()
            .write("{\"error\":\"invalid_client\",\"error_description\":\"bad client credentials\"}");
      }
    }

    private static String credential(HttpServletRequest asked) {
      String header = asked.getHeader("Authorization");
      if (header == null || !header.startsWith("Basic ")) {
        return asked.getParameter("client_id") + ":" + asked.getParameter("client_secret");
      }
      try {
        byte[] decoded = Base64.getDecoder().decode(header.substring("Basic ".length()).trim());
        return new String(decoded, StandardCharsets.UTF_8);
      } catch (IllegalArgumentException err) {
        return "";
      }
    }
  }
}
